"""A search for false certificates: random problems, fitted, and judged with 600 bits.

    python -m tests.fuzz_certificates [seconds [first seed]]      `make fuzz` does it for a minute

A `Recipe` is a small problem by its numbers, with an ordinary value for each of them; what is found
is printed as the recipe that is left when everything that does not matter has its ordinary value.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy import sparse

import margrave
from margrave.kernels import KERNELS, Kernel
from margrave.solvers import HULL_SOLVERS, SOLVERS
from tests.exact_gap import dense, exact_gaps

SECONDS = 5.0  # of a fit
HANGS = 60.0  # seconds after which a fit and its judgement count as endless
ROUNDED, TINY = 1e-9, 1e-12  # by how much a gap may be told too small
SHOWN = 3  # findings of a kind that are printed in full

# estimator -> the losses (or None) that it has
ESTIMATORS = {
    "SVC": ("hinge", "squared_hinge"),
    "SVR": ("epsilon_insensitive", "squared_epsilon_insensitive", "huber", "pinball"),
    "KernelLogisticRegression": (None,),
    "ODMClassifier": (None,),
    "OneClassSVM": (None,),
    "NuSVC": (None,),
    "NuSVR": (None,),
    "HardMarginSVC": (None,),
}
MULTI_CLASS = {
    "SVC": ("ovo", "ovr", "crammer_singer"),
    "KernelLogisticRegression": ("ovr", "softmax"),
    "ODMClassifier": ("ovo", "ovr"),
}
HULLS = ("NuSVC", "NuSVR", "HardMarginSVC")
SEPARATED = ("NuSVC", "HardMarginSVC")  # their optimum is a distance, and may be none
REGRESSORS = ("SVR", "NuSVR")
INTERCEPTS = ("free", "regularized", None)


@dataclass(frozen=True)
class Recipe:
    """A problem, and how to solve it."""

    seed: int = 0
    estimator: str = "SVC"
    loss: str | None = None
    kernel: str = "linear"
    intercept: str | None = "free"
    multi_class: str | None = None
    solver: str = "auto"
    tol: float = 1e-3
    n: int = 20
    d: int = 3
    classes: int = 2
    apart: float = 1.0  # of the classes' centres, or of the targets from noise
    scale: float = 1.0  # of the features
    spread: float = 1.0  # largest scale of a feature over the least
    offset: float = 0.0  # of the features, in their scale
    duplicates: bool = False
    clusters: int = 0  # rows in groups along the first feature, most of them far from each other
    constant: bool = False  # a column
    storage: str = "float64"
    heavy: float = 1.0  # the weight of one row among ones
    span: float = 1.0  # largest weight over the least
    target_scale: float = 1.0
    target_offset: float = 0.0
    C: float = 1.0
    epsilon: float = 0.1  # in the scale of the targets
    quantile: float = 0.5
    nu: float = 0.3
    gamma: float = 1.0  # in one over the squared distances
    coef0: float = 1.0
    degree: int = 3
    power: float = 1.0
    max_iter: int = -1
    time_limit: float = SECONDS

    def __str__(self):
        changed = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)
            if getattr(self, f.name) != f.default
        ]
        return f"Recipe({', '.join(changed)})"

    # --- the data --------------------------------------------------------------------------

    def data(self):
        """X, y (None for one class), sample_weight (None where all are one)."""
        rng = np.random.default_rng(self.seed)
        X = rng.normal(size=(self.n, self.d))
        noise = rng.normal(size=self.n)
        exponents = rng.uniform(-0.5, 0.5, size=self.d)
        order = rng.permutation(self.n)
        orders = rng.uniform(-0.5, 0.5, size=self.n)
        if self.estimator in REGRESSORS:
            y = X @ rng.normal(size=self.d) * self.apart + noise
            y = self.target_scale * y + self.target_offset
        else:
            y = np.arange(self.n) % self.classes
            centres = rng.normal(size=(self.classes, self.d))
            X = X + 2.0 * self.apart * centres[y]
            X, y = X[order], y[order]
        if self.clusters:
            steps = np.random.default_rng([self.seed, 1]).uniform(0.0, 20.0, self.clusters)
            X[:, 0] += np.cumsum(steps)[np.arange(self.n) * self.clusters // self.n]
        X = X * (self.scale * self.spread**exponents) + self.offset * self.scale
        if self.constant:
            X[:, 0] = X[0, 0]
        if self.duplicates and self.n >= 4:
            half = self.n // 2
            X[half : 2 * half] = X[:half]
        weight = np.ones(self.n) * self.span**orders
        weight[0] *= self.heavy
        if self.kernel == "precomputed":
            X = np.exp(-self._gamma() * ((X[:, None] - X) ** 2).sum(axis=2))
        elif self.storage == "float32":
            X = X.astype(np.float32)
        elif self.storage == "csr":
            X = sparse.csr_array(np.where(rng.random(X.shape) < 0.3, 0.0, X))
        y = None if self.estimator == "OneClassSVM" else y
        return X, y, None if np.all(weight == 1.0) else weight

    def _gamma(self):
        distance = self.d * self.scale if self.kernel == "laplacian" else self.d * self.scale**2
        return self.gamma / distance

    # --- the model -------------------------------------------------------------------------

    def model(self):
        parameters = {
            "kernel": self.kernel,
            "gamma": self._gamma(),
            "degree": self.degree,
            "coef0": self.coef0,
            "power": self.power,
            "solver": self.solver,
            "tol": self.tol,
            "max_iter": self.max_iter,
            "time_limit": self.time_limit,
            "n_jobs": 1,
        }
        if self.estimator not in (*HULLS, "OneClassSVM"):
            parameters["intercept"] = self.intercept
        if self.loss is not None:
            parameters["loss"] = self.loss
        if self.estimator in MULTI_CLASS and self.multi_class is not None:
            parameters["multi_class"] = self.multi_class
        if self.estimator == "ODMClassifier":
            parameters["lam"] = self.C
        elif self.estimator not in ("OneClassSVM", *SEPARATED):
            parameters["C"] = self.C
        if self.estimator == "SVR":
            parameters["epsilon"] = self.epsilon * self.target_scale
            parameters["quantile"] = self.quantile
        if self.estimator in ("NuSVC", "NuSVR", "OneClassSVM"):
            parameters["nu"] = self.nu
        return getattr(margrave, self.estimator)(**parameters)

    def fit(self):
        X, y, weight = self.data()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.model().fit(X, y, sample_weight=weight)

    @property
    def is_ordinary(self):
        """Whether everything is well scaled, so that the fit has to converge."""
        easy = Recipe()
        same = (
            *("scale", "spread", "offset", "duplicates", "clusters", "constant", "heavy", "span"),
            *("target_scale", "target_offset", "max_iter", "time_limit"),
        )
        return (
            all(getattr(self, name) == getattr(easy, name) for name in same)
            and self.solver in ("auto", "exact")
            and (self.kernel in ("linear", "poly") or Kernel(self.kernel).is_shift_invariant)
            and not (self.kernel == "poly" and self.coef0 < 0.0)  # not positive semidefinite
            and self.tol >= 1e-8
            and 0.01 <= self.C <= 100.0
            and self.apart <= 3.0
            and (self.estimator not in SEPARATED or self.apart == 3.0)
        )


# --- the search ----------------------------------------------------------------------------


def _power(rng, low, high):
    return float(10.0 ** rng.uniform(low, high))


def _choice(rng, values):
    return values[rng.integers(len(values))]


def draw(seed):
    """A recipe; every third is an ordinary problem, every eighth one has distant groups of rows."""
    recipe = _draw(seed)
    rng = np.random.default_rng([20261116, seed])
    if rng.random() > 1 / 8:
        return recipe
    kernel = _choice(rng, [name for name in sorted(KERNELS) if Kernel(name).is_shift_invariant])
    numbers = {"n": _choice(rng, (50, 70, 90)), "gamma": _power(rng, -1, 3)}
    return replace(recipe, kernel=kernel, clusters=int(rng.integers(2, 12)), **numbers)


def _draw(seed):
    rng = np.random.default_rng([20260501, seed])
    estimator = _choice(rng, ("SVC", "SVC", "SVR", *ESTIMATORS))
    recipe = Recipe(
        seed=seed,
        estimator=estimator,
        loss=_choice(rng, ESTIMATORS[estimator]),
        kernel="linear" if rng.random() < 0.5 else _choice(rng, sorted(KERNELS)),
        tol=_choice(rng, (1e-3, 1e-3, 1e-5, 1e-8, 1e-10)),
        n=_choice(rng, (*range(2, 12), 20, 30, 40, 60)),
        d=_choice(rng, (1, 2, 3, 5, 10, 40)),
        apart=_choice(rng, (0.0, 0.3, 1.0, 3.0, 10.0)),
    )
    numbers = _numbers(rng, recipe)
    recipe = replace(recipe, **{name: draw_one() for name, draw_one in numbers.items()})
    if rng.random() < 1 / 3:
        apart = 3.0 if estimator in SEPARATED else min(recipe.apart, 3.0)
        solver, tol = _choice(rng, ("auto", "exact")), max(recipe.tol, 1e-8)
        return replace(recipe, solver=solver, tol=tol, apart=apart)
    if rng.random() < 0.6:
        solvers = HULL_SOLVERS if estimator in HULLS else SOLVERS
        recipe = replace(recipe, solver=_choice(rng, ("exact", *solvers)))
    extremes = _extremes(rng, recipe)
    names = rng.choice(sorted(extremes), size=int(rng.integers(1, 5)), replace=False)
    return replace(recipe, **{name: extremes[name]() for name in names})


def _numbers(rng, recipe):
    """What the estimator reads, with ordinary values."""
    numbers = {}
    if recipe.estimator in MULTI_CLASS:
        numbers["multi_class"] = lambda: _choice(rng, MULTI_CLASS[recipe.estimator])
    if recipe.estimator not in (*REGRESSORS, "OneClassSVM") and recipe.n >= 6:
        numbers["classes"] = lambda: _choice(rng, (2, 2, 3))
    if recipe.estimator not in (*HULLS, "OneClassSVM"):
        numbers["intercept"] = lambda: _choice(rng, INTERCEPTS)
    if recipe.estimator not in ("OneClassSVM", *SEPARATED):
        numbers["C"] = lambda: _power(rng, -2, 2)
    if recipe.estimator in ("NuSVC", "NuSVR", "OneClassSVM"):
        numbers["nu"] = lambda: float(rng.uniform(0.05, 0.9))
    if recipe.estimator == "SVR":
        numbers["epsilon"] = lambda: _choice(rng, (0.1, 0.1, 1.0, 1e-3))
    if recipe.loss == "pinball":
        numbers["quantile"] = lambda: _choice(rng, (0.5, 0.9, 0.05))
    if recipe.kernel != "linear":
        numbers["gamma"] = lambda: _power(rng, -2, 1)
    if recipe.kernel == "poly":
        numbers["degree"] = lambda: int(rng.integers(1, 4))
    if "power" in KERNELS[recipe.kernel]:
        numbers["power"] = lambda: _choice(rng, (1.0, 0.7, 0.4))
    return numbers


def _extremes(rng, recipe):
    """What can be badly scaled, or stop a fit."""
    extremes = {
        "scale": lambda: _power(rng, -12, 12),
        "spread": lambda: _power(rng, 0, 8),
        "offset": lambda: _power(rng, 2, 8),
        "duplicates": lambda: True,
        "constant": lambda: True,
        "storage": lambda: _choice(rng, ("float32", "csr")),
        "heavy": lambda: _power(rng, 3, 14),
        "span": lambda: _power(rng, 1, 12),
        "max_iter": lambda: int(rng.integers(1, 10)),
        "time_limit": lambda: 1e-3,
    }
    numbers = _numbers(rng, recipe)
    if recipe.estimator in REGRESSORS:
        extremes["target_scale"] = lambda: _power(rng, -8, 8)
        extremes["target_offset"] = lambda: _power(rng, 0, 8)
    if "C" in numbers:
        extremes["C"] = lambda: _power(rng, -10, 14)
    if "gamma" in numbers:
        extremes["gamma"] = lambda: _power(rng, -9, 4)
    if recipe.kernel in ("poly", "sigmoid"):
        extremes["coef0"] = lambda: float(rng.normal())
    return extremes


@dataclass(frozen=True)
class Finding:
    """What is wrong with a fit."""

    kind: str
    text: str
    size: float = 1.0  # by how much a statement is wrong


def is_covered(true, told):
    """Whether a gap that is told is no less than the true one, but for its own last digits."""
    return bool(true <= told * (1.0 + ROUNDED) + TINY or told == math.inf)


def judge(recipe):
    """Fit and judge: findings, and what became of the fit in a word."""
    started = time.monotonic()
    X, y, weight = recipe.data()
    try:
        model = recipe.fit()
    except ValueError as error:
        return [], f"refused: {str(error)[:60]}"
    seconds = time.monotonic() - started
    found = []
    if seconds > recipe.time_limit + 1.0:
        found.append(Finding("budget", f"{seconds:.1f} s for time_limit={recipe.time_limit:g}"))
    gaps = np.asarray(model.gaps_)
    if np.isnan(gaps).any() or np.isnan(model.gap_):
        found.append(Finding("nan", f"gaps_ {gaps}"))
    if (gaps < 0).any():
        found.append(Finding("negative", f"gaps_ {gaps}"))
    if model.converged_ and not (gaps <= recipe.tol).all():
        found.append(Finding("converged above tol", f"gaps_ {gaps}"))
    if model.certificate_ != "full":
        return found, f"certificate {model.certificate_!r}"
    numbers = [dense(model.dual_coef_).ravel(), np.ravel(model.intercept_)]
    if not np.isfinite(np.concatenate(numbers)).all():
        found.append(Finding("not finite", f"{model.solver_}, gap_ {model.gap_:.3g}"))
        return found, "not finite"
    exact = exact_gaps(model, X, y, weight)
    true = np.array([one.gap for one in exact])
    told = f"{model.solver_}, gap_ {model.gap_:.3g}, true {true.max():.3g}"
    is_definite = recipe.kernel == "linear" or Kernel(recipe.kernel).is_shift_invariant
    if is_definite and (true < -1e-100).any():
        found.append(Finding("oracle", f"{told}: weak duality is broken"))
    if not all(map(is_covered, true, gaps)):
        found.append(Finding("gap_", told, (true - gaps).max()))
    claimed = model.certify(X, y, sample_weight=weight)
    if np.isnan(claimed):
        found.append(Finding("certify nan", f"{told}, certify {claimed}"))
    elif not is_covered(true.max(), claimed):
        found.append(Finding("certify", f"{told}, certify {claimed:.3g}", true.max() - claimed))
    if not model.converged_:
        # a constant has to be a number of double precision, too
        times = np.ones(X.shape[0]) if weight is None else weight
        digit = float(np.sum(times) * getattr(model, "C", 0.0))
        digit *= float(np.spacing(np.abs(model.intercept_).max()))
        for one in exact:
            if math.isfinite(one.gap) and one.primal > one.zero * (1 + 1e-9) + digit:
                found.append(
                    Finding("worse than a constant", f"{told}: {one.primal:.6g} > {one.zero:.6g}")
                )
                break
    if recipe.is_ordinary and not model.converged_:
        found.append(Finding("false alarm", f"{told}, {seconds:.1f} s"))
    return found, "converged" if model.converged_ else "not converged"


def shrink(recipe, finding, beat, seconds=10.0):
    """The recipe with everything ordinary that a finding of this size does not need."""
    until = time.monotonic() + seconds

    def still(other):
        beat.value = time.time()
        try:
            found = judge(other)[0]
        except Exception:
            return False
        return any(f.kind == finding.kind and f.size >= 0.1 * finding.size for f in found)

    easy = Recipe()
    for _ in range(2):
        before = recipe
        for field in fields(Recipe):
            name = field.name
            if name in ("seed", "estimator"):
                continue
            trials = [getattr(easy, name)]
            value = getattr(recipe, name)
            if name == "loss" and value is not None:
                trials = [ESTIMATORS[recipe.estimator][0]]
            if name in ("n", "d"):
                trials = [v for v in (1, 2, 3, 4, 5, 8, 12, 20) if int(name == "n") < v < value]
            if isinstance(value, float) and value not in (0.0, trials[0]):
                trials.append(10.0 ** round(math.log10(abs(value))))
            for trial in trials:
                if time.monotonic() > until:
                    return recipe
                other = replace(recipe, **{name: trial})
                if other != recipe and still(other):
                    recipe = other
                    break
        if recipe == before:
            break
    return recipe


def search(first, until, seed, beat, count):
    """Judge one recipe after another and print what is found; in a process of its own."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    words, known = Counter(), Counter()
    while time.time() < until:
        recipe = draw(seed.value)
        beat.value = time.time()
        try:
            found, word = judge(recipe)
        except Exception as error:  # none of the library's business to raise
            found, word = [Finding(type(error).__name__, str(error)[:200])], "raised"
        words[word.partition(":")[0]] += 1
        for finding in found:
            count.value += 1
            key = finding.kind, recipe.estimator, recipe.loss, recipe.solver
            known[key] += 1
            if known[key] <= SHOWN:
                show(recipe, finding, beat)
        seed.value += 1
    print(f"seeds {first} to {seed.value - 1}: {dict(words.most_common())}")
    for key, times in sorted(known.items(), key=str):
        print(f"    {times:4d} {', '.join(map(str, key))}")


def show(recipe, finding, beat):
    """Print what reproduces a finding."""
    small = shrink(recipe, finding, beat)
    text = next((f.text for f in judge(small)[0] if f.kind == finding.kind), finding.text)
    print(f"{finding.kind}: {text}\n    judge({small})\n    # was draw({recipe.seed})", flush=True)


def main(seconds=60.0, first=None):
    """Search for some seconds; returns the number of findings. A fit that hangs is one."""
    context = multiprocessing.get_context("spawn")
    first = int(time.time()) if first is None else first
    until = time.time() + seconds
    seed, beat, count = context.Value("q", first), context.Value("d", 0.0), context.Value("q", 0)
    print("from tests.fuzz_certificates import Recipe, draw, judge", flush=True)
    while time.time() < until:
        beat.value = time.time()
        worker = context.Process(target=search, args=(first, until, seed, beat, count))
        worker.start()
        while worker.is_alive() and time.time() < beat.value + HANGS:
            worker.join(1.0)
        if worker.exitcode != 0:
            worker.kill()
            worker.join()
            what = "hangs" if worker.exitcode == -9 else f"ends with {worker.exitcode}"
            print(f"the process {what}\n    judge(draw({seed.value}))", flush=True)
            count.value += 1
            seed.value += 1
    return count.value


if __name__ == "__main__":
    arguments = sys.argv[1:]
    found = main(
        float(arguments[0]) if arguments else 60.0, int(arguments[1]) if arguments[1:] else None
    )
    print(f"{found} findings" if found else "nothing found")
    sys.exit(1 if found else 0)
