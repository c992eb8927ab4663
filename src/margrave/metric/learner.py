"""MetricLearner: a transformer of rows into those whose distances tell the targets apart."""

from __future__ import annotations

import time
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
    is_classifier,
)
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from margrave import _core
from margrave._sklearn import Interval, StrOptions, _check_feature_names_in, _check_sample_weight
from margrave.estimators import SVC, SVR
from margrave.estimators._advice import outside
from margrave.estimators._base import KernelEstimator
from margrave.estimators._files import savable
from margrave.estimators._input import Floats, Rows
from margrave.estimators._remote import canonical
from margrave.estimators._transaction import transaction
from margrave.metric.iteration import Iterate, Sample, Trials, transformed
from margrave.rows import Matrix, is_csr
from margrave.typing import MatrixLike, Seed, VectorLike

_C = (1.0, 8.0, 64.0)  # tried on the rows as they are, without an estimator to say
_MOST_CLASSES = 100  # whole numbers with more values are targets of a regression
_DENSE = 256 << 20  # bytes of the dense copy of sparse rows that gradients need
_WIDEST = 1000  # features up to which "auto" tries a full metric
_TOL = 1e-2  # relative duality gap of the fits: their scores and gradients hardly depend on it


@savable
class MetricLearner(TransformerMixin, ClassNamePrefixFeaturesOutMixin, BaseEstimator):  # type: ignore[misc]
    r"""Learn which features, or directions, distances between rows should depend on.

    The distances of all kernels but "linear", "poly" and "sigmoid" count every feature alike.
    With a metric M they become :math:`(x - z)^\top M (x - z)`. M is the mean outer product of a
    fitted machine's own gradients, as in a recursive feature machine [1]_:

    .. math:: M \leftarrow \frac1n \sum_i \nabla f(x_i) \nabla f(x_i)^\top,

    a few times, with a new fit in each metric. The metric with the best score on held-out rows is
    kept, and it may be none. Transformed rows are :math:`M^{1/2} x`; any estimator can follow.
    Scale the features first, for example by :class:`sklearn.preprocessing.StandardScaler`.

    Parameters
    ----------
    kind : {"auto", "diagonal", "full"}, default="auto"
        "diagonal" weighs features, "full" also turns and mixes them. "auto" tries both where both
        are possible: full ones need a kernel of the Euclidean distance and dense rows.
    estimator : estimator or None, default=None
        The machine whose gradients are used, for example ``SVC(C=10)``, with any kernel of a
        distance. None is an SVC, or an SVR with squared loss and standardised targets if these
        are not classes (fractions, or more than 100 different numbers), and C is one of 1, 8
        and 64.
    kernel : str or None, default=None
        The machine's kernel: "rbf", "exponential", "matern32", "matern52", or "laplacian" (which
        has diagonal metrics only). None is that of `estimator`, or "exponential".
    iterations : int, default=5
        How many metrics to try of each kind.
    sample : int, default=10000
        Rows at most that the machine is fitted to.
    validation : float, default=0.2
        Share of the rows that are held out to choose the metric, in (0, 1).
    time_limit : float or None, default=None
        Seconds after which the best metric so far is kept.
    n_jobs : int or None, default=None
        Number of threads; None for all cores available to the process.
    random_state : int, RandomState instance or None, default=None
        Seed of the sample. None means a fixed seed, so that fits are repeatable.

    Attributes
    ----------
    metric_ : ndarray of shape (n_features,) or (n_features, n_features)
        M, scaled to a largest diagonal entry of one; only its diagonal if M is diagonal.
    kind_ : {"none", "diagonal", "full"}
        The kind of the best metric; "none" leaves the rows as they are.
    feature_importances_ : ndarray of shape (n_features,)
        The diagonal of M: the mean square of the derivative by each feature.
    root_ : ndarray of the shape of `metric_`
        M to the power 1/2, by which rows are multiplied.
    gamma_ : float
        gamma of the machine that had the best score.
    score_ : float
        That score: accuracy or R2 on the held-out rows.
    history_ : list of dict
        Every metric that was tried: kind, iteration, C, gamma, score and seconds.
    n_features_in_, feature_names_in_
        Number and names of the features.

    References
    ----------
    .. [1] A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin: Mechanism for feature learning
       in neural networks and backpropagation-free machine learning models. Science 383, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import SVC, MetricLearner
    >>> from sklearn.pipeline import make_pipeline
    >>> X = np.random.default_rng(0).normal(size=(1000, 5))
    >>> y = X[:, 0] * X[:, 1] > 0  # the other three features say nothing
    >>> learner = MetricLearner().fit(X, y)
    >>> (learner.feature_importances_ > 0.1).tolist()
    [True, True, False, False, False]
    >>> plain, learned = SVC(C=10), make_pipeline(learner, SVC(C=10))
    >>> more = np.random.default_rng(1).normal(size=(1000, 5))
    >>> truth = more[:, 0] * more[:, 1] > 0
    >>> learned.fit(X, y).score(more, truth) > plain.fit(X, y).score(more, truth)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kind": [StrOptions({"auto", "diagonal", "full"})],
        "estimator": [None, KernelEstimator],
        "kernel": [None, str],
        "iterations": [Interval(Integral, 1, None, closed="left")],
        "sample": [Interval(Integral, 2, None, closed="left")],
        "validation": [Interval(Real, 0.0, 1.0, closed="neither")],
        "time_limit": [None, Interval(Real, 0.0, None, closed="neither")],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        kind: str = "auto",
        estimator: KernelEstimator | None = None,
        *,
        kernel: str | None = None,
        iterations: int = 5,
        sample: int = 10_000,
        validation: float = 0.2,
        time_limit: float | None = None,
        n_jobs: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.kind = kind
        self.estimator = estimator
        self.kernel = kernel
        self.iterations = iterations
        self.sample = sample
        self.validation = validation
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.random_state = random_state

    @transaction
    def fit(self, X: MatrixLike, y: VectorLike, sample_weight: VectorLike | None = None) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows. Sparse ones get a diagonal metric.
        y : array-like of shape (n_samples,)
            Labels or targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row: in the fits, in the score and in the mean of the gradients.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        self._validate_params()
        begin = time.perf_counter()

        def left() -> float:
            limit = np.inf if self.time_limit is None else self.time_limit
            return min(1e18, limit - (time.perf_counter() - begin))

        checked, targets = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        rows = canonical(checked)
        is_class = self._is_classification(targets)
        if is_class:
            check_classification_targets(targets)
        weight = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        machines = self._machines(is_class)
        kinds = self._kinds(machines[0], rows)
        used = np.flatnonzero(weight)
        if is_class and len(np.unique(targets[used])) < 2:
            raise ValueError("MetricLearner needs at least two classes, but there is only 1 class")
        rng = check_random_state(0 if self.random_state is None else self.random_state)
        found = self._split(rows, targets, weight, used, is_class, rng)
        self._store(np.ones(rows.shape[1]), "none", np.nan, np.nan)
        self.history_: list[dict[str, Any]] = []
        if found is None:
            warnings.warn(
                f"{len(used)} rows are too few to choose a metric: the rows stay as they are",
                UserWarning,
                stacklevel=outside(),
            )
            return self
        trials = Trials(*found, _score, 1.0, rng, left)
        best = self._try(trials.measure(machines[0], np.ones(rows.shape[1])), "none", 0, None)
        for machine in machines[1:]:
            if left() > 0.0:
                best = self._try(trials.measure(machine, best.root), "none", 0, best)
        first = best
        for kind in kinds:
            improved = trials.improve(first, kind == "full", self.iterations)
            for number, one in enumerate(improved, start=1):
                best = self._try(one, kind, number, best)
        return self

    def _try(self, one: Iterate, kind: str, number: int, best: Iterate | None) -> Iterate:
        """Record a metric, keep it if it is the best, and return the best."""
        gamma = float(one.model.gamma)
        record = {"kind": kind, "iteration": number, "C": float(one.model.C), "gamma": gamma}
        self.history_.append({**record, "score": one.score, "seconds": one.seconds})
        if best is not None:
            ties = self.kind_ == "none" and kind != "none"  # a metric says more than none
            if one.score < best.score or (one.score == best.score and not ties):
                return best
        self._store(one.root, kind, gamma, one.score)
        return one

    def _store(self, root: Floats, kind: str, gamma: float, score: float) -> None:
        self.root_, self.kind_, self.gamma_, self.score_ = root, kind, gamma, score
        self.metric_ = root**2 if root.ndim == 1 else root.T @ root
        self.feature_importances_ = self.metric_ if root.ndim == 1 else np.diag(self.metric_).copy()

    def _is_classification(self, y: NDArray[Any]) -> bool:
        if self.estimator is not None:
            return bool(is_classifier(self.estimator))
        kind = type_of_target(y)
        return kind == "binary" or (
            kind == "multiclass"
            and (y.dtype.kind not in "iuf" or len(np.unique(y)) <= _MOST_CLASSES)
        )

    def _machines(self, is_class: bool) -> list[KernelEstimator]:
        """The machine, or one for each C to try."""
        if self.estimator is not None:
            given = {} if self.kernel is None else {"kernel": self.kernel}
            machines = [clone(self.estimator).set_params(**given)]
        else:
            machines = [self._default(is_class, C) for C in _C]
        name = machines[0].kernel
        if (
            not isinstance(name, str)
            or name not in _core.KERNELS
            or not _core.Kernel(name).shift_invariant
        ):
            known = [k for k in _core.KERNELS if _core.Kernel(k).shift_invariant]
            raise ValueError(
                f"a metric needs a kernel of a distance ({', '.join(known)}), got {name!r}"
            )
        for needed in ("C", "gamma"):
            if needed not in machines[0].get_params():
                raise ValueError(
                    f"{type(machines[0]).__name__} has no {needed} and learns no metric"
                )
        return machines

    def _default(self, is_class: bool, C: float) -> KernelEstimator:
        kernel = self.kernel or "exponential"
        if is_class:
            return SVC(C, kernel=kernel, multi_class="ovr", tol=_TOL, n_jobs=self.n_jobs)
        loss = "squared_epsilon_insensitive"
        return SVR(C, epsilon=0.0, kernel=kernel, loss=loss, tol=_TOL, n_jobs=self.n_jobs)

    def _kinds(self, machine: KernelEstimator, X: Matrix) -> list[str]:
        euclidean = _core.Kernel(machine.kernel).pairing == "squares"
        if self.kind == "full":
            if is_csr(X):
                raise ValueError("sparse rows have diagonal metrics only: use kind='diagonal'")
            if not euclidean:
                raise ValueError(
                    f"kernel={machine.kernel!r} has diagonal metrics only, because |x - z|_1 is a"
                    " sum over features: use kind='diagonal' or another kernel"
                )
        if self.kind != "auto":
            return [self.kind]
        can_turn = euclidean and not is_csr(X) and 1 < X.shape[1] <= _WIDEST
        return ["diagonal", "full"] if can_turn else ["diagonal"]

    def _split(
        self,
        X: Matrix,
        y: NDArray[Any],
        weight: Floats,
        used: Rows,
        is_class: bool,
        rng: np.random.RandomState,
    ) -> tuple[Sample, Sample] | None:
        """Rows to fit and rows to score, None if there are too few."""
        most = self.sample
        if is_csr(X):
            most = min(most, max(1000, _DENSE // (X.dtype.itemsize * X.shape[1])))
        total = min(len(used), int(most / (1.0 - self.validation)))
        used = rng.permutation(used)[:total]
        labels = np.unique(y[used], return_inverse=True)[1] if is_class else np.zeros(total, int)
        single = np.bincount(labels)[labels] < 2  # for the machine only
        often, held = np.flatnonzero(~single), round(self.validation * total)
        if held < max(2, labels[often].max(initial=0) + 1) or len(often) - held < len(
            np.unique(labels)
        ):
            return None
        classes = np.unique(labels[often], return_inverse=True)[1]
        train, test = train_test_split(
            often, test_size=held, stratify=classes if is_class else None, random_state=rng
        )
        train = np.concatenate([train, np.flatnonzero(single)])
        targets = y
        if self.estimator is None and not is_class:
            mean = np.average(y[used], weights=weight[used])
            spread = float(np.sqrt(np.average((y[used] - mean) ** 2, weights=weight[used])))
            targets = (y - mean) / (spread or 1.0)
        samples = [Sample(X[at], targets[at], weight[at]) for at in (used[train], used[test])]
        return samples[0], samples[1]

    def transform(self, X: MatrixLike) -> Matrix:
        """Multiply rows by the root of the metric.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        Z : {ndarray, sparse} of shape (n_samples, n_features)
            Rows whose Euclidean distances (or, with a diagonal metric, sums of absolute
            differences) are those of the metric.
        """
        check_is_fitted(self)
        checked = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
        )
        rows = canonical(checked)
        if is_csr(rows) and self.root_.ndim == 2:
            rows = rows.toarray()
        return transformed(rows, self.root_)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the transformed features: those of the input unless the metric mixes them."""
        check_is_fitted(self)
        if self.root_.ndim == 1:
            names: NDArray[Any] = _check_feature_names_in(self, input_features)
            return names
        mixed: NDArray[Any] = super().get_feature_names_out(input_features)
        return mixed

    @property
    def _n_features_out(self) -> int:
        return len(self.root_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kind != "full"
        tags.target_tags.required = True
        return tags


def _score(model: KernelEstimator, rows: Sample) -> float:
    return float(model.score(rows.X, rows.y, sample_weight=rows.weight))
