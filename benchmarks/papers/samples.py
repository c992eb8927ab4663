"""How fast Gibbs sampling mixes: effective samples, and how many of them a second yields."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks import augmentation
from benchmarks.data import read as read_archive
from benchmarks.papers.study import TIMED, Found, Study
from margrave import SVC, SVR, BayesianSVC, BayesianSVR
from margrave.solvers import ExpectationMaximization, Gibbs

ROWS, SAMPLES, BURN_IN, CHAINS = 20_000, 400, 100, 4
LANDMARKS = 100  # of the rbf kernel
# case -> data set of benchmarks.augmentation, and whether the kernel is linear
CASES = {
    "susy30k, LIN-CLS": ("susy30k", True),
    "skin_nonskin, LIN-CLS": ("skin_nonskin", True),
    "covtype.binary, LIN-CLS": ("covtype", True),
    "protein, LIN-SVR": ("protein", True),
    "susy30k, KRN-CLS": ("susy30k", False),
    "protein, KRN-SVR": ("protein", False),
}


def _rows_of(case: str, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows drawn at random."""
    chosen = augmentation.CASES[CASES[case][0]]
    rng = np.random.default_rng(0)
    if quick:
        X = rng.standard_normal((200, 3))
        z = X[:, 0] + 0.3 * rng.standard_normal(200)
        return X, z if chosen.regression else np.sign(z)
    X, y = chosen.prepare(read_archive(chosen.dataset))
    some = rng.permutation(len(y))[:ROWS]
    return X[some].astype(np.float32), y[some]


def _sampler(case: str, quick: bool) -> Any:
    name, is_linear = CASES[case]
    machine = BayesianSVR if augmentation.CASES[name].regression else BayesianSVC
    space: dict[str, Any] = {"kernel": "linear", "intercept": "regularized"}
    if not is_linear:
        space = {"kernel": "rbf", "gamma": 0.1, "features": 10 if quick else LANDMARKS}
    samples = 50 if quick else SAMPLES
    solver = Gibbs(n_samples=samples, burn_in=BURN_IN, chains=CHAINS)
    return machine(2.0, **space, solver=solver, random_state=0)


def counts(case: str, quick: bool) -> dict[str, Any]:
    """Effective samples of the worst weight, of the objective, and the largest R-hat."""
    X, y = _rows_of(case, quick)
    model = _sampler(case, quick).fit(X, y)
    told = model.diagnostics_
    return {
        "rows": len(y),
        "features": X.shape[1],
        "draws": int(model.n_draws_),
        "ess": float(told["min_ess"]),
        "ess_objective": float(told["ess_objective"]),
        "r_hat": float(told["max_r_hat"]),
        "score": float(model.score(X, y)),
    }


def seconds(case: str, quick: bool) -> dict[str, Any]:
    """Seconds of all draws, of EM and of the direct solver for the same optimum."""
    X, y = _rows_of(case, quick)
    found = {"MC": _spent(_sampler(case, quick), X, y)}
    name, is_linear = CASES[case]
    if is_linear:
        machine = SVR if augmentation.CASES[name].regression else SVC
        for way, solver in (("EM", ExpectationMaximization()), ("direct", "auto")):
            fixed = {"kernel": "linear", "intercept": "regularized", "random_state": 0}
            found[way] = _spent(machine(1.0, **fixed, solver=solver), X, y)
    return found


def _spent(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    begin = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - begin


def _rows(case: str, found: Found) -> list[list[str]]:
    timed = found[TIMED]
    rate = f"{found['ess'] / timed['MC']:,.1f}" if timed else "-"
    others = (f"{timed[way]:.3g}" if way in timed else "-" for way in ("MC", "EM", "direct"))
    return [
        [
            f"{found['rows']:,} x {found['features']}",
            f"{found['draws']:,}",
            *(f"{found['ess']:,.0f}", f"{found['ess_objective']:,.0f}", f"{found['r_hat']:.3f}"),
            f"{1000.0 * found['ess'] / found['draws']:.0f}",
            *(rate, *others),
        ]
    ]


STUDIES = {
    "pemsvm-samples": Study(
        "Effective samples",
        f"At most {ROWS:,} standardised rows, lam = 2, {CHAINS} chains of {SAMPLES} draws after"
        f" {BURN_IN} that are discarded; KRN has the rbf kernel with gamma = 0.1 on {LANDMARKS}"
        " landmarks. Effective samples are those of the weight that mixes worst, and of the"
        " objective. The paper measures neither. Seconds, where measured, are those of all draws,"
        " of EM and of the direct solver to a gap of 1e-3.",
        tuple(CASES),
        counts,
        (
            *("case", "rows", "draws", "effective: worst weight", "objective", "R-hat"),
            *("effective per 1,000 draws", "effective per second"),
            *("seconds: draws", "EM", "direct"),
        ),
        _rows,
        seconds=seconds,
    )
}
