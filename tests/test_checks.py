"""scikit-learn's common estimator checks: all of them, with their number asserted."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from margrave import SVC

# tol=1e-12: the checks compare weighted with repeated rows to 1e-7
EXACT = [
    SVC(tol=1e-12),
    SVC(tol=1e-12, kernel="linear"),
    SVC(tol=1e-12, loss="squared_hinge"),
    SVC(tol=1e-12, intercept="regularized"),
    SVC(tol=1e-12, intercept=None, kernel="laplacian"),
    SVC(tol=1e-12, multi_class="ovr"),
    SVC(tol=1e-12, kernel="precomputed"),
]
CHECKS = {"precomputed": 61}
DEFAULT_CHECKS = 64
REASON = "weights are compared to 1e-7, the default tol=1e-3 is a relative gap of 1e-3"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": REASON,
    "check_sample_weight_equivalence_on_sparse_data": REASON,
}


def label(estimator):
    return str(estimator)


@parametrize_with_checks(EXACT)
def test_exact(estimator, check):
    check(estimator)


@parametrize_with_checks([SVC()], expected_failed_checks=lambda estimator: EXPECTED)
def test_defaults(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [*EXACT, SVC()], ids=label)
def test_number_of_checks(estimator):
    names = [
        getattr(check, "func", check).__name__
        for _, check in estimator_checks_generator(estimator, mark=None)
    ]
    assert len(names) == CHECKS.get(estimator.kernel, DEFAULT_CHECKS)
    if estimator.kernel != "precomputed":
        assert set(EXPECTED) <= set(names)
