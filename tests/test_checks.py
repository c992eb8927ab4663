"""scikit-learn's common estimator checks: all of them, with their number asserted."""

import pytest
import sklearn
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from margrave import (
    SVC,
    SVR,
    AutoClassifier,
    AutoRegressor,
    BayesianSVC,
    BayesianSVR,
    HardMarginSVC,
    KernelLogisticRegression,
    MetricLearner,
    NuSVC,
    NuSVR,
    ODMClassifier,
    OneClassSVM,
)

# The checks compare scores of weighted and of repeated rows to 1e-7. A gap bounds their distance
# by sqrt(2 gap P), hence the small tolerance.
EXACT = [
    SVC(tol=1e-12),
    SVC(tol=1e-12, kernel="linear"),
    SVC(tol=1e-12, loss="squared_hinge"),
    SVC(tol=1e-12, intercept="regularized"),
    SVC(tol=1e-12, intercept=None, kernel="laplacian"),
    SVC(tol=1e-12, multi_class="ovr"),
    SVC(tol=1e-12, multi_class="crammer_singer", intercept=None),
    SVC(tol=1e-12, kernel="precomputed"),
    SVR(tol=1e-12),
    SVR(tol=1e-12, loss="squared_epsilon_insensitive", kernel="linear"),
    SVR(tol=1e-12, kernel="linear", intercept="regularized"),
    SVR(tol=1e-12, loss="huber", intercept=None),
    SVR(tol=1e-12, kernel="precomputed"),
    KernelLogisticRegression(tol=1e-12),
    KernelLogisticRegression(tol=1e-12, kernel="linear"),
    KernelLogisticRegression(tol=1e-12, multi_class="softmax", intercept="regularized"),
    ODMClassifier(tol=1e-12),
    ODMClassifier(tol=1e-12, kernel="linear", intercept="free"),
    ODMClassifier(tol=1e-12, multi_class="ovr", intercept="free"),
    ODMClassifier(tol=1e-12, intercept="free", kernel="precomputed"),
    OneClassSVM(tol=1e-12),
    NuSVC(nu=0.1, tol=1e-12, break_ties=True),  # scikit-learn's own needs this, too
    NuSVR(tol=1e-12),
    NuSVR(tol=1e-12, kernel="linear"),
]
DEFAULTS = [
    SVC(),
    SVR(),
    KernelLogisticRegression(),
    ODMClassifier(),
    OneClassSVM(),
    HardMarginSVC(),
    NuSVC(nu=0.1, break_ties=True),
    NuSVR(),
]
FEW_DRAWS = {"n_samples": 40, "burn_in": 10, "chains": 2}
SAMPLED = [
    BayesianSVC(**FEW_DRAWS),
    BayesianSVC(kernel="linear", multi_class="ovr", **FEW_DRAWS),
    BayesianSVR(**FEW_DRAWS),
    BayesianSVR(kernel="linear", **FEW_DRAWS),
]
# how many there are: (rows, kernel matrices) by version of scikit-learn and kind of estimator
CHECKS = {"1.9": {"classifier": (64, 61), "regressor": (60, 57), "outlier_detector": (54, 51)}}
TRANSFORMERS = [
    MetricLearner(),
    MetricLearner(kernel="laplacian", kind="diagonal"),
    MetricLearner("full", SVR(C=10)),
]
REASON = "weights are compared to 1e-7, the default tol=1e-3 is a relative gap of 1e-3"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": REASON,
    "check_sample_weight_equivalence_on_sparse_data": REASON,
}
SEARCHES = [AutoClassifier(max_fits=8), AutoRegressor(max_fits=8)]
SPLIT = dict.fromkeys(EXPECTED, "a repeated row may be split between fit and validation")
OTHER = "a weight draws once and a repeated row several times: the same density, other draws"
DRAWS = {
    **dict.fromkeys(EXPECTED, OTHER),
    "check_decision_proba_consistency": "shares of the posterior depend on its width, not only on"
    " the mean scores",
}


@parametrize_with_checks(EXACT)
def test_exact(estimator, check):
    check(estimator)


def expected(estimator):
    """The checks of weights; and of the hard margin one whose classes share rows of zeros."""
    if isinstance(estimator, HardMarginSVC):
        overlap = "the check's classes have equal rows, and a ValueError says so"
        return {**EXPECTED, "check_estimator_sparse_tag": overlap}
    return EXPECTED


@parametrize_with_checks(SEARCHES, expected_failed_checks=lambda estimator: SPLIT)
def test_searches(estimator, check):
    check(estimator)


@parametrize_with_checks(TRANSFORMERS, expected_failed_checks=lambda estimator: SPLIT)
@pytest.mark.filterwarnings("ignore:.* rows are too few to choose a metric")
def test_transformers(estimator, check):
    check(estimator)


@parametrize_with_checks(DEFAULTS, expected_failed_checks=expected)
def test_defaults(estimator, check):
    check(estimator)


@parametrize_with_checks(SAMPLED, expected_failed_checks=lambda estimator: DRAWS)
@pytest.mark.filterwarnings("ignore:Bayesian.* the chains have not mixed")
def test_sampled(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [*EXACT, *DEFAULTS, *SAMPLED], ids=str)
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
        kind = get_tags(estimator).estimator_type
        no_weights = kind == "classifier" and "class_weight" not in estimator.get_params()
        assert len(names) == known[kind][precomputed] - no_weights
    if not precomputed:
        assert set(EXPECTED) <= set(names)
