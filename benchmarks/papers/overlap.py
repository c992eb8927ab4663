"""From which alpha on the reduced hulls of nu-SVM are apart, with the linear kernel."""

from __future__ import annotations

from typing import Any

from benchmarks.papers.saddle import SOFT, ByAlpha
from benchmarks.papers.study import Found, Study
from benchmarks.papers.worker import first
from margrave import NuSVC

ALPHAS = (0.3, 0.5, 0.7, 0.85, 0.9, 0.95)
SETS = {
    "phishing": SOFT["phishing"],
    "a9a": SOFT["a9a"],
    "skin_nonskin": SOFT["skin-nonskin"],
    "ijcnn1": SOFT["ijcnn1"],
    "ijcnn1, official split": SOFT["ijcnn1-official"],
}


def measure(case: str, quick: bool) -> dict[str, Any]:
    """Half the squared distance, and accuracy, by alpha; None where the hulls overlap."""
    dataset = SETS[case]
    data = first(dataset.load(quick).in_form(dataset.forms["margrave"]), 200 if quick else None)
    found: dict[str, Any] = {"rows": len(data.y), "alphas": {}}
    for alpha in ALPHAS[-2:] if quick else ALPHAS:
        machine = NuSVC(kernel="linear", tol=1e-3, random_state=0, time_limit=60)
        try:
            model = ByAlpha(machine, alpha).fit(data.X, data.y)
        except ValueError as error:
            if "overlap" not in str(error):
                raise
            found["alphas"][str(alpha)] = None
            continue
        found["alphas"][str(alpha)] = {
            "objective": float(model.objective_),
            "gap": float(model.gap_),
            "accuracy": 100.0 * float(model.score(data.X_new, data.y_new)),
        }
    return found


def _lines(case: str, found: Found) -> list[list[str]]:
    cells = []
    for alpha in map(str, ALPHAS):
        one = found["alphas"].get(alpha, {})
        if one is None:
            cells.append("overlap")
        elif not one:
            cells.append("-")
        elif one["gap"] > 1e-3:
            cells.append(f"gap {one['gap']:.1g}")
        else:
            cells.append(f"{(2.0 * one['objective']) ** 0.5:.3g}, {one['accuracy']:.2f} %")
    return [[f"{found['rows']:,}", *cells]]


STUDIES = {
    "saddle-overlap": Study(
        "From which alpha on the hulls are apart",
        "Pair swaps, at most 60 s each: the distance of the reduced hulls and the accuracy, where"
        ' they are apart. The paper finds "alpha > 0.7 usually ensures that the two reduced'
        ' polytopes are linearly separable".',
        tuple(SETS),
        measure,
        ("data set", "rows", *(f"alpha = {alpha:g}" for alpha in ALPHAS)),
        _lines,
    )
}
