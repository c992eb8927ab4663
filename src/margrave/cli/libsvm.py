"""``margrave-train`` and ``margrave-predict``: the command lines of svm-train and svm-predict.

    margrave-train [options] training_set_file [model_file]
    margrave-predict [options] test_file model_file output_file

Options, files and messages are those of LIBSVM; both read each other's model files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_regressor

from margrave.cli import estimators, model_files
from margrave.cli.console import INTERRUPTED, run, say, show
from margrave.cli.data import STANDARD_INPUT, name_of, read_table, text_of
from margrave.cli.train import megabytes
from margrave.cli.use import check_has, kernel_values, rows_for
from margrave.estimators import save_libsvm_model
from margrave.estimators._base import KernelEstimator
from margrave.io.files import replacing
from margrave.report.estimator import final_estimator
from margrave.rows import Matrix

Number = TypeVar("Number", int, float)

_TRAIN = "usage: margrave-train [options] training_set_file [model_file]"
_PREDICT = "usage: margrave-predict [options] test_file model_file output_file"
_TRAIN_HELP = f"""{_TRAIN}
options:
-s type         0 SVC, 1 NuSVC, 2 OneClassSVM, 3 SVR, 4 NuSVR (default 0)
-t kernel       0 linear, 1 poly, 2 rbf, 3 sigmoid, 4 precomputed: kernel values in
                training_set_file (default 2)
-d degree       degree of the poly kernel (default 3)
-g gamma        gamma of the kernel (default 1 / number of features)
-r coef0        coef0 of poly and sigmoid (default 0)
-c cost         C of SVC, SVR and NuSVR (default 1)
-n nu           nu of NuSVC, OneClassSVM and NuSVR (default 0.5)
-p epsilon      epsilon of SVR's loss (default 0.1)
-m megabytes    memory limit (default: half of what is free)
-e gap          relative duality gap to stop at (default 0.001)
-h shrinking    0 or 1; without effect: the solver decides by itself
-b probability  1: also fit probabilities to cross-validated scores (default 0)
-wi weight      multiply C by weight for class i (default 1)
-v n            cross-validate with n folds instead of writing a model
-q              no progress bar, no summary
training_set_file may also be a table (.csv, .parquet, .npy, .npz); - is standard input.
margrave train --help lists what else there is: scaling, solvers, time limits, engines."""
_PREDICT_HELP = f"""{_PREDICT}
options:
-b probability  1: write probabilities, if the model has them (default 0)
-q              no summary
test_file may also be a table (.csv, .parquet, .npy, .npz); - is standard input."""
# parameters of the numeric options; the other options are handled separately
_NUMBERS = {"c": "C", "r": "coef0", "n": "nu", "p": "epsilon", "e": "tol"}


def train() -> None:
    """Run ``margrave-train``."""
    sys.exit(run(lambda: _or_help(_train, _TRAIN_HELP), "margrave-train"))


def predict() -> None:
    """Run ``margrave-predict``."""
    sys.exit(run(lambda: _or_help(_predict, _PREDICT_HELP), "margrave-predict"))


def _or_help(command: Callable[[Sequence[str]], int], text: str) -> int:
    """Run a command, or list its options: if asked to, and with exit code 1 if nothing was said."""
    words = sys.argv[1:]
    if words and words[0] not in ("-help", "--help"):
        return command(words)
    show(text)
    return 0 if words else 1


def options_of(
    arguments: Sequence[str], letters: str, usage: str
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Options by letter, weights by label, and file names, parsed as in LIBSVM.

    >>> options_of(["-c", "2", "-w-1", "5", "-q", "data"], "cq", "")
    ({'c': '2', 'q': ''}, {'-1': '5'}, ['data'])
    """
    options: dict[str, str] = {}
    weights: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != STANDARD_INPUT:
        word = rest.pop(0)
        letter = word[1:2]
        if letter not in letters + "w" or (letter == "w" and "c" not in letters):
            raise ValueError(f"unknown option {word}; {usage}")
        if letter == "q":
            options["q"] = ""
            continue
        if not rest:
            raise ValueError(f"option {word} needs a value; {usage}")
        value = rest.pop(0)
        if letter == "w":
            weights[word[2:]] = value
        else:
            options[letter] = value
    return options, weights, rest


def _number(options: dict[str, str], letter: str, kind: Callable[[str], Number]) -> Number:
    try:
        return kind(options[letter])
    except ValueError:
        raise ValueError(f"-{letter} needs a number, got {options[letter]!r}") from None


def _train(arguments: Sequence[str]) -> int:
    options, weights, files = options_of(arguments, "stdgrnmcephbvq", _TRAIN)
    if not 1 <= len(files) <= 2:
        raise ValueError(_TRAIN)
    estimator = _estimator(options)
    probabilities = _wants_probabilities(options)
    if probabilities:
        estimators.check_probabilities(estimator)
    data = files[0]
    if data == STANDARD_INPUT and len(files) == 1:
        raise ValueError(f"rows from standard input: name the model file; {_TRAIN}")
    model_file = files[1] if len(files) == 2 else f"{name_of(data)}.model"
    folds = _number(options, "v", int) if "v" in options else None
    if folds is None:
        model_files.check_output(model_file)
    X, y = _rows(data, estimator)
    if weights and hasattr(estimator, "class_weight"):
        known = {text_of(np.array([label])).decode().strip() for label in np.unique(y)}
        for label in weights.keys() - known:
            say(f"WARNING: class label {label} specified in weight is not found")
        pairs = [f"{label}={value}" for label, value in weights.items() if label in known]
        estimator.set_params(class_weight=estimators.class_weights(pairs, y))
    if folds is not None:
        predicted = estimators.cross_validate(estimator, None, X, y, folds)
        _report("Cross Validation ", estimator, y, predicted)
        return 0
    done = estimators.train(estimator, None, X, y, probabilities)
    save_libsvm_model(estimator, model_file)
    if "q" not in options:
        show(f"optimization finished, #iter = {np.sum(estimator.n_iter_)}")
        show(f"obj = {-estimator.objective_:.6f}, duality gap = {estimator.gap_:.2g}")
        show(f"Total nSV = {len(estimator.support_)}")
    return INTERRUPTED if done.interrupted else 0


def _wants_probabilities(options: dict[str, str]) -> bool:
    found = _number(options, "b", int) if "b" in options else 0
    if found not in (0, 1):
        raise ValueError(f"-b must be 0 or 1, got {found}")
    return found == 1


def _estimator(options: dict[str, str]) -> KernelEstimator:
    """Create the estimator with LIBSVM's defaults, without parameters that it does not have."""
    given: dict[str, object] = {"gamma": "auto", "verbose": 0 if "q" in options else 1}
    for letter, name in _NUMBERS.items():
        if letter in options:
            given[name] = _number(options, letter, float)
    if "d" in options:
        given["degree"] = _number(options, "d", int)
    if "g" in options and _number(options, "g", float) != 0:
        given["gamma"] = _number(options, "g", float)
    if "m" in options:
        given["memory_limit"] = megabytes(options["m"])
    for letter, count in (("s", 5), ("t", 5)):
        if options.get(letter, "0") not in map(str, range(count)):
            raise ValueError(f"-{letter} must be from 0 to {count - 1}, got {options[letter]!r}")
    given["kernel"] = estimators.kernel_name(options.get("t", "2"))
    return estimators.make(options.get("s", "0"), given, strict=False)


def _rows(data: str, estimator: KernelEstimator) -> tuple[Matrix, NDArray[Any]]:
    table = read_table(data)
    X = kernel_values(data, table) if estimator.kernel == "precomputed" else table.X
    return X, table.labels(data)


def _predict(arguments: Sequence[str]) -> int:
    options, _, files = options_of(arguments, "bq", _PREDICT)
    if len(files) != 3:
        raise ValueError(_PREDICT)
    data, model_file, output = files
    model_files.check_output(output)
    model, table = rows_for(model_file, data)
    if _wants_probabilities(options):
        check_has(model, "predict_proba", model_file)
        classes = final_estimator(model).classes_
        chances = model.predict_proba(table.X)
        predicted = classes[np.argmax(chances, axis=1)]
        text = _with_probabilities(classes, predicted, chances)
    else:
        predicted = np.asarray(model.predict(table.X))
        text = text_of(predicted)
    with replacing(output) as file:
        file.write(text)
    if "q" not in options:
        _report("", final_estimator(model), table.labels(data), predicted)
    return 0


def _with_probabilities(
    classes: NDArray[Any], predicted: NDArray[Any], chances: NDArray[np.float64]
) -> bytes:
    """The labels in a first line; then each row's label and its probabilities."""
    rows = [b"labels " + b" ".join(text_of(classes).split())]
    for label, own in zip(text_of(predicted).split(), chances.tolist(), strict=True):
        rows.append(b" ".join([label, *(b"%g" % chance for chance in own)]))
    return b"\n".join(rows) + b"\n"


def _report(
    title: str, estimator: KernelEstimator, y: NDArray[Any], predicted: NDArray[Any]
) -> None:
    """Print accuracy or errors in LIBSVM's format."""
    own = " (classification)" if not title else ""
    if not is_regressor(estimator):
        right, n = int(np.sum(predicted == y)), len(y)
        counts = "" if title else f" ({right}/{n})"
        show(f"{title}Accuracy = {100 * right / n:g}%{counts}{own}")
        return
    own = " (regression)" if not title else ""
    show(f"{title}Mean squared error = {np.mean((predicted - y) ** 2):g}{own}")
    spread = np.std(predicted) * np.std(y)
    correlation = np.mean((predicted - np.mean(predicted)) * (y - np.mean(y))) / spread
    show(f"{title}Squared correlation coefficient = {correlation**2:g}{own}")
