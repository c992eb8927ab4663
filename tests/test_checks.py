"""scikit-learn's common estimator checks: all of them, with their number asserted."""

import pytest
import sklearn
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from margrave import SVC

# The checks compare scores of weighted and of repeated rows to 1e-7. A gap bounds their distance
# by sqrt(2 gap P), hence the small tolerance.
EXACT = [
    SVC(tol=1e-12),
    SVC(tol=1e-12, kernel="linear"),
    SVC(tol=1e-12, loss="squared_hinge"),
    SVC(tol=1e-12, intercept="regularized"),
    SVC(tol=1e-12, intercept=None, kernel="laplacian"),
    SVC(tol=1e-12, multi_class="ovr"),
    SVC(tol=1e-12, kernel="precomputed"),
]
# how many there are: (rows, kernel matrices) by version of scikit-learn
CHECKS = {"1.9": (64, 61)}
REASON = "weights are compared to 1e-7, the default tol=1e-3 is a relative gap of 1e-3"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": REASON,
    "check_sample_weight_equivalence_on_sparse_data": REASON,
}


@parametrize_with_checks(EXACT)
def test_exact(estimator, check):
    check(estimator)


@parametrize_with_checks([SVC()], expected_failed_checks=lambda estimator: EXPECTED)
def test_defaults(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [*EXACT, SVC()], ids=str)
def test_number_of_checks(estimator):
    names = [
        getattr(check, "func", check).__name__
        for _, check in estimator_checks_generator(estimator, mark=None)
    ]
    precomputed = estimator.kernel == "precomputed"
    known = CHECKS.get(".".join(sklearn.__version__.split(".")[:2]))
    if known is None:  # another version than those counted: a gross loss would still show
        assert len(names) > 50
    else:
        assert len(names) == known[precomputed]
    if not precomputed:
        assert set(EXPECTED) <= set(names)
