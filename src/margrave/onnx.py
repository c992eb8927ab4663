"""ONNX export (extra ``onnx``): converters for skl2onnx.

    scores = sum_j coef_j k(x, x_j) + b          in double precision, whatever the input

Importing this module registers the converters, so that ``skl2onnx.to_onnx`` accepts every estimator
of the package (except the Bayesian ones), alone or at the end of a pipeline; `to_onnx` calls it.
Classifiers have the outputs `label` and `scores` (`decision_function`, or `predict_proba` if there
is one), one-class SVMs `label` and `scores`, regressors `variable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from margrave.estimators import KernelLogisticRegression, OneClassSVM
from margrave.estimators._base import KernelEstimator
from margrave.estimators._bayesian import BayesianEstimator
from margrave.estimators._classifier import KernelClassifier
from margrave.estimators._files import estimators
from margrave.extras import install
from margrave.kernels import Kernel
from margrave.rows import is_csr

try:
    import skl2onnx
    from onnx import TensorProto
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType
except ImportError:
    raise ImportError(f"ONNX export needs skl2onnx: {install('onnx')}") from None

if TYPE_CHECKING:
    from onnx import ModelProto
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope, Variable

Floats = NDArray[np.float64]
Input: TypeAlias = str | NDArray[Any] | np.float64  # of a node: a name, or a constant

_TYPES = {"f": TensorProto.DOUBLE, "i": TensorProto.INT64, "U": TensorProto.STRING}


def to_onnx(model: KernelEstimator | Pipeline, X: ArrayLike, **options: object) -> ModelProto:
    """Convert a fitted estimator, or a pipeline that ends with one.

    Parameters
    ----------
    model : estimator or Pipeline
        Fitted estimator; posteriors, models of parts and callable kernels cannot be exported.
    X : array-like of shape (n_samples, n_features)
        At least one row of the kind that will be predicted, which determines the input type.
    **options
        Passed on to ``skl2onnx.to_onnx``.

    Returns
    -------
    graph : onnx.ModelProto
    """
    graph: ModelProto = skl2onnx.to_onnx(model, np.asarray(X)[:1], **options)
    return graph


class _Graph:
    """Nodes and constants of one model."""

    def __init__(self, scope: Scope, container: ModelComponentContainer) -> None:
        self.scope, self.container = scope, container

    def constant(self, value: NDArray[Any] | np.float64) -> str:
        """Add an array, and return its name."""
        array = np.asarray(value)
        kind = array.dtype.kind
        flat = array.ravel().tolist()
        if kind == "U":
            flat = [text.encode() for text in flat]
        name: str = self.scope.get_unique_variable_name("constant")
        self.container.add_initializer(name, _TYPES[kind], list(array.shape), flat)
        return name

    def __call__(
        self, op: str, *inputs: Input, output: str | None = None, **attributes: int
    ) -> str:
        """Add a node; inputs that are not names become constants."""
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        result: str = output or self.scope.get_unique_variable_name(op.lower())
        node = self.scope.get_unique_operator_name(op)
        self.container.add_node(op, names, [result], name=node, **attributes)
        return result


def _scores(graph: _Graph, model: KernelEstimator, X: str) -> str:
    """Scores of the model's problems, one column each."""
    kernel = model._kernel
    if isinstance(model, BayesianEstimator):
        raise ValueError(
            "a posterior cannot be exported to ONNX; SVC and SVR have a point estimate"
        )
    if model._local is not None:
        raise ValueError("a model of parts cannot be exported to ONNX; fit the whole problem")
    if kernel.is_callable:
        raise ValueError("a callable kernel cannot be exported to ONNX")
    b = model.intercept_[None, :]
    if kernel.name == "linear":
        coef = model.coef_
        weights = coef.toarray() if is_csr(coef) else coef
        return graph("Add", graph("MatMul", X, np.asarray(weights, np.float64).T), b)
    coefficients = np.array(model._coefficients()).T
    if kernel.is_precomputed:
        values = graph("Gather", X, model.support_.astype(np.int64), axis=1)
    else:
        vectors = model.support_vectors_
        points = np.asarray(vectors.toarray() if is_csr(vectors) else vectors, dtype=np.float64)
        values = _kernel(graph, kernel, X, points)
    return graph("Add", graph("MatMul", values, coefficients), b)


def _kernel(graph: _Graph, kernel: Kernel, X: str, points: Floats) -> str:
    """Kernel values of rows with points."""
    make = _KERNELS.get(str(kernel.name))
    if make is None:
        raise ValueError(f"the kernel {kernel.name!r} cannot be exported to ONNX")
    return make(graph, kernel, X, points)


def _affine(graph: _Graph, kernel: Kernel, X: str, points: Floats) -> str:
    """gamma x'z + coef0."""
    scaled = graph("Mul", graph("MatMul", X, points.T), np.float64(kernel.gamma))
    return graph("Add", scaled, np.float64(kernel.coef0))


def _squares(graph: _Graph, X: str, points: Floats) -> str:
    """|x - z|^2."""
    own = graph("ReduceSum", graph("Mul", X, X), np.array([1]), keepdims=1)
    squares = graph("Add", own, (points**2).sum(axis=1)[None])
    products = graph("MatMul", X, points.T)
    distances = graph("Sub", squares, graph("Mul", products, np.float64(2.0)))
    return graph("Max", distances, np.float64(0.0))  # rounding may go below


def _differences(graph: _Graph, X: str, points: Floats) -> str:
    """x - z, by rows, points and features."""
    return graph("Sub", graph("Unsqueeze", X, np.array([1])), points[None])


def _poly(graph: _Graph, kernel: Kernel, X: str, points: Floats) -> str:
    return graph("Pow", _affine(graph, kernel, X, points), np.float64(kernel.degree))


def _sigmoid(graph: _Graph, kernel: Kernel, X: str, points: Floats) -> str:
    return graph("Tanh", _affine(graph, kernel, X, points))


def _rbf(graph: _Graph, kernel: Kernel, X: str, points: Floats) -> str:
    return graph("Exp", graph("Mul", _squares(graph, X, points), np.float64(-kernel.gamma)))


def _laplacian(graph: _Graph, kernel: Kernel, X: str, points: Floats) -> str:
    differences = graph("Abs", _differences(graph, X, points))
    distances = graph("ReduceSum", differences, np.array([2]), keepdims=0)
    scaled = graph("Mul", distances, np.float64(kernel.gamma))
    return graph("Exp", graph("Neg", graph("Pow", scaled, np.float64(kernel.power))))


def _exponential(graph: _Graph, kernel: Kernel, X: str, points: Floats) -> str:
    differences = _differences(graph, X, points)  # squares of close points would lose their digits
    squares = graph("ReduceSum", graph("Mul", differences, differences), np.array([2]), keepdims=0)
    scaled = graph("Mul", squares, np.float64(kernel.gamma))
    return graph("Exp", graph("Neg", graph("Pow", scaled, np.float64(kernel.power / 2))))


def _matern(order: int, graph: _Graph, kernel: Kernel, X: str, points: Floats) -> str:
    """(1 + t) exp(-t), or with t^2/3 more; t = (order gamma)^(1/2) |x - z|."""
    square = graph("Mul", _squares(graph, X, points), np.float64(order * kernel.gamma))
    t = graph("Sqrt", square)
    factor = graph("Add", t, np.float64(1.0))
    if order == 5:
        factor = graph("Add", factor, graph("Div", square, np.float64(3.0)))
    return graph("Mul", factor, graph("Exp", graph("Neg", t)))


_KERNELS: dict[str, Callable[[_Graph, Kernel, str, Floats], str]] = {
    "poly": _poly,
    "sigmoid": _sigmoid,
    "rbf": _rbf,
    "laplacian": _laplacian,
    "exponential": _exponential,
    "matern32": partial(_matern, 3),
    "matern52": partial(_matern, 5),
}


def _sides(k: int) -> tuple[Floats, Floats]:
    """The class that each pair votes for if its score is positive, and if it is not."""
    pairs = list(combinations(range(k), 2))
    first, second = np.zeros((len(pairs), k)), np.zeros((len(pairs), k))
    for p, (i, j) in enumerate(pairs):
        first[p, i] = second[p, j] = 1.0
    return first, second


def _votes(graph: _Graph, scores: str, k: int, comparison: str) -> str:
    """Votes of the pairs of classes."""
    first, second = _sides(k)
    won = graph("Cast", graph(comparison, scores, np.float64(0.0)), to=TensorProto.DOUBLE)
    lost = graph("Sub", np.float64(1.0), won)
    return graph("Add", graph("MatMul", won, first), graph("MatMul", lost, second))


def _best(graph: _Graph, model: KernelClassifier, scores: str) -> str:
    """Index of the predicted class."""
    k, order = len(model.classes_), model._tie_order
    probabilistic = isinstance(model, KernelLogisticRegression)
    if model._scheme == "binary":
        second = not probabilistic if order is None else order[0] == 1
        comparison = "GreaterOrEqual" if second else "Greater"
        positive = graph(comparison, scores, np.float64(0.0))
        return graph("Squeeze", graph("Cast", positive, to=TensorProto.INT64), np.array([1]))
    if model._scheme == "ovo":
        if model.break_ties and model.decision_function_shape == "ovr":
            scores = _decisions(graph, model, scores)
        else:
            scores = _votes(graph, scores, k, "Greater")
    order = np.arange(k) if order is None else order
    ordered = graph("Gather", scores, order.astype(np.int64), axis=1)
    best = graph("ArgMax", ordered, axis=1, keepdims=0)
    return graph("Gather", order.astype(np.int64), best)


def _decisions(graph: _Graph, model: KernelClassifier, scores: str) -> str:
    """The decision function of several classes."""
    if model._scheme != "ovo" or model.decision_function_shape == "ovo":
        return scores
    k = len(model.classes_)
    first, second = _sides(k)
    confidence = graph("MatMul", scores, first - second)
    room = graph("Add", graph("Abs", confidence), np.float64(1.0))
    squeezed = graph("Div", confidence, graph("Mul", room, np.float64(3.0)))
    return graph("Add", _votes(graph, scores, k, "GreaterOrEqual"), squeezed)


def _probabilities(graph: _Graph, model: KernelClassifier, scores: str) -> str:
    if model._scheme == "softmax":
        return graph("Softmax", scores, axis=1)
    if model._scheme == "binary":
        both = graph("Concat", graph("Neg", scores), scores, axis=1)
        return graph("Sigmoid", both)
    own = graph("Sigmoid", scores)
    return graph("Div", own, graph("ReduceSum", own, np.array([1]), keepdims=1))


def _convert(scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Add the nodes of one estimator."""
    graph = _Graph(scope, container)
    model: KernelEstimator = operator.raw_operator
    outputs = [variable.full_name for variable in operator.outputs]
    X = graph("Cast", operator.inputs[0].full_name, to=TensorProto.DOUBLE)
    scores = _scores(graph, model, X)
    if not isinstance(model, KernelClassifier):
        if not isinstance(model, OneClassSVM):
            graph("Identity", scores, output=outputs[0])
            return
        inside = graph("GreaterOrEqual", scores, np.float64(0.0))
        label = graph("Where", inside, np.array([[1]]), np.array([[-1]]))
        graph("Squeeze", label, np.array([1]), output=outputs[0])
        graph("Identity", scores, output=outputs[1])
        return
    graph("Gather", _labels(model), _best(graph, model, scores), output=outputs[0])
    if isinstance(model, KernelLogisticRegression):
        found = _probabilities(graph, model, scores)
    elif model._scheme == "crammer_singer" and len(model.classes_) == 2:
        found = graph("MatMul", scores, np.array([[-1.0], [1.0]]))
    else:
        found = _decisions(graph, model, scores)
    graph("Identity", found, output=outputs[1])


def _labels(model: KernelClassifier) -> NDArray[Any]:
    """Classes as an array of strings, integers or doubles."""
    classes: NDArray[Any] = model.classes_
    if classes.dtype.kind in "UO":
        return classes.astype(str)
    return classes.astype(np.float64 if classes.dtype.kind == "f" else np.int64)


def _parse(
    scope: Scope,
    model: KernelEstimator,
    inputs: Sequence[Variable],
    custom_parsers: Mapping[type, Callable[..., Sequence[Variable]]] | None = None,
) -> Sequence[Variable]:
    """Declare an estimator and its outputs."""
    operator = scope.declare_local_operator(_alias(type(model)), model)
    operator.inputs = list(inputs)
    is_classifier = isinstance(model, KernelClassifier)
    if is_classifier or isinstance(model, OneClassSVM):
        kind = _labels(model).dtype.kind if is_classifier else "i"
        types = {"U": StringTensorType, "i": Int64TensorType, "f": DoubleTensorType}
        operator.outputs.append(scope.declare_local_variable("label", types[kind]([None])))
        name = "scores"
    else:
        name = "variable"
    width = None if is_classifier else 1
    operator.outputs.append(scope.declare_local_variable(name, DoubleTensorType([None, width])))
    outputs: Sequence[Variable] = operator.outputs
    return outputs


def _shapes(operator: Operator) -> None:
    """Nothing to infer: `_parse` declares the shapes of the outputs."""


def _alias(cls: type) -> str:
    return f"Margrave{cls.__name__}"


for _cls in estimators().values():
    skl2onnx.update_registered_converter(_cls, _alias(_cls), _shapes, _convert, parser=_parse)
