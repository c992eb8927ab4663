"""What must hold for every loss, kernel and intercept, whatever the numbers are."""

from functools import cache

import numpy as np
import pytest

from tests import build, cases, oracle
from tests.data import load
from tests.golden import RECORDS

TOL = 1e-10
each_loss = pytest.mark.parametrize("loss", cases.ZERO_SUM, ids=cases.name_of)
each_kernel = pytest.mark.parametrize("kernel", cases.KERNELS, ids=cases.name_of)
each_intercept = pytest.mark.parametrize("intercept", cases.INTERCEPTS)


@cache
def rows_for(kernel_name, labels):
    """Small overlapping classes, or a noisy curve; wide rows where the kernel asks for them."""
    rng = np.random.default_rng(7)
    # tanh(gamma x.z + coef0) is positive definite only if rows are nearly orthogonal
    n, d = (40, 800) if kernel_name == "sigmoid" else (60, 4)
    X = rng.standard_normal((n, d))
    signal = X[:, 0] + 0.5 * X[:, 1] ** 2 - 0.5 + 0.5 * rng.standard_normal(n)
    if kernel_name == "sigmoid":
        X = 2.0 * X / np.sqrt(d)
    y = np.where(signal > 0, 1.0, -1.0) if labels else signal
    X.flags.writeable = y.flags.writeable = False
    return X, y


def arrays(loss, kernel):
    """(X, y, C, K) of the small problem; weights differ from row to row."""
    X, y = rows_for(kernel[0], oracle.LOSSES[loss[0]].labels)
    C = np.linspace(0.5, 1.5, len(y))
    return X, y, C, kernel_matrix(kernel)


def kernel_matrix(kernel):
    name = repr(kernel)
    if name not in kernel_matrix.kept:
        X, _ = rows_for(kernel[0], True)
        K = cases.oracle_kernel(kernel)(X, X)
        assert np.linalg.eigvalsh(K).min() > -1e-12, "no certificate without a convex problem"
        kernel_matrix.kept[name] = K
    return kernel_matrix.kept[name]


kernel_matrix.kept = {}


def best(loss, kernel, intercept):
    """The oracle's solution, computed once per combination."""
    key = repr((loss, kernel, intercept))
    if key not in best.kept:
        _, y, C, K = arrays(loss, kernel)
        best.kept[key] = oracle.solve(K, y, C, cases.oracle_loss(loss), intercept)
        assert best.kept[key].gap < 1e-12
    return best.kept[key]


best.kept = {}


def decisions(solution):
    return solution.scores + solution.intercept


def random_feasible(loss, y, C, intercept, rng):
    """A random point of the box; sum zero where the intercept is free."""
    low, high = (np.clip(bound, -C, C) for bound in cases.oracle_loss(loss).box(y, C))
    beta = low + (high - low) * rng.uniform(0.05, 0.95, len(y))
    if intercept == "free":
        plus, minus = beta[beta > 0].sum(), -beta[beta < 0].sum()
        beta = beta * np.where(beta > 0, min(1, minus / plus), min(1, plus / minus))
    return beta


@each_loss
@each_kernel
@each_intercept
def test_certificate(loss, kernel, intercept):
    """What the solver reports is what numpy finds from beta alone, and it is the optimum."""
    X, y, C, K = arrays(loss, kernel)
    problem = build.problem(X, y, C, loss, kernel, intercept)
    found, progress = build.run(problem, tol=TOL)
    naive = cases.oracle_loss(loss)
    low, high = naive.box(y, C)
    assert np.all(found.beta >= low) and np.all(found.beta <= high)
    if loss[0] == "logistic":
        assert np.all(y * found.beta > 0) and np.all(y * found.beta < C)
    if intercept == "free":
        assert abs(found.beta.sum()) <= 1e-12 * C.sum()

    # the three numbers of the certificate
    again = oracle.certify(K, y, C, naive, intercept, found.beta)
    assert found.converged and 0 <= found.gap <= TOL
    assert found.objective == pytest.approx(again.primal, rel=2 * TOL)
    assert found.dual == pytest.approx(again.dual, rel=1e-12)
    assert -1e-12 <= again.gap <= found.gap + 1e-13
    np.testing.assert_allclose(found.scores + found.intercept, again.decisions, atol=1e-4)

    # the optimum: |f - f*|^2 <= 2 K_ii (D - D*) and D - D* <= gap
    optimum = best(loss, kernel, intercept)
    assert found.objective == pytest.approx(optimum.primal, rel=2 * TOL)
    scale = max(optimum.primal, 1.0) * (K.diagonal().max() + 1)
    np.testing.assert_allclose(
        found.scores if intercept == "free" else decisions(found),
        optimum.scores if intercept == "free" else optimum.decisions,
        atol=np.sqrt(2 * scale * 2 * TOL),
    )

    # every round: a true gap, and a dual that never rises
    duals = np.array([record["dual"] for record in progress.history])
    gaps = np.array([record["gap"] for record in progress.history])
    assert gaps.min() >= -1e-12 and gaps[-1] == found.gap
    assert np.all(np.diff(duals) <= 1e-12 * np.abs(duals[1:]))
    for record in progress.history:
        gap = record["objective"] + record["dual"]
        size = max(abs(record["objective"]), abs(record["dual"]))
        assert record["gap"] == pytest.approx(gap / size, abs=1e-12)


@each_loss
@each_kernel
@each_intercept
def test_weak_duality(loss, kernel, intercept, rng):
    """-D(any feasible point) <= P(any point): the certified pair separates all others."""
    X, y, C, K = arrays(loss, kernel)
    problem = build.problem(X, y, C, loss, kernel, intercept)
    found, _ = build.run(problem, tol=TOL)
    naive = cases.oracle_loss(loss)
    for _ in range(3):
        beta = random_feasible(loss, y, C, intercept, rng)
        other = oracle.certify(K, y, C, naive, intercept, beta)
        assert -other.dual <= found.objective * (1 + 1e-12)
        assert -found.dual <= other.primal * (1 + 1e-12)
        # stopped at once, the solver certifies that very point, or a better one
        stopped, _ = build.run(problem, tol=TOL, start=beta, max_iter=1)
        assert stopped.dual <= other.dual + 1e-12 * abs(other.dual)
        again = oracle.certify(K, y, C, naive, intercept, stopped.beta)
        assert stopped.gap >= again.gap - 1e-12
        assert again.gap >= -1e-12


@each_loss
@each_kernel
@each_intercept
def test_invariances(loss, kernel, intercept, rng):
    X, y, C, K = arrays(loss, kernel)
    n = len(y)
    optimum = best(loss, kernel, intercept)
    scale = max(optimum.primal, 1.0) * (K.diagonal().max() + 1)
    close = {"rtol": 0, "atol": 2 * np.sqrt(2 * scale * 2 * TOL)}
    first = build.solve(X, y, C, loss, kernel, intercept, tol=TOL)

    # order of the rows
    order = rng.permutation(n)
    moved = build.solve(X[order], y[order], C[order], loss, kernel, intercept, tol=TOL)
    assert moved.objective == pytest.approx(first.objective, rel=2 * TOL)
    np.testing.assert_allclose(decisions(moved), decisions(first)[order], **close)

    # sign of the targets: scores and intercept change sign
    flipped = build.solve(X, -y, C, cases.mirrored(loss), kernel, intercept, tol=TOL)
    assert flipped.objective == pytest.approx(first.objective, rel=2 * TOL)
    np.testing.assert_allclose(decisions(flipped), -decisions(first), **close)
    assert flipped.intercept == pytest.approx(-first.intercept, abs=close["atol"])

    # every row twice with half the weight
    twice = build.solve(np.r_[X, X], np.r_[y, y], np.r_[C, C] / 2, loss, kernel, intercept, tol=TOL)
    assert twice.objective == pytest.approx(first.objective, rel=2 * TOL)
    np.testing.assert_allclose(decisions(twice), np.tile(decisions(first), 2), **close)


@each_loss
@each_kernel
@pytest.mark.parametrize("intercept", [None, "free"])
@pytest.mark.parametrize("factor", [1e-3, 50.0])
def test_scale_of_the_kernel(loss, kernel, intercept, factor):
    """Kernel times s and weights over s: the same scores, objective over s, beta over s."""
    X, y, C, K = arrays(loss, kernel)
    values = cases.oracle_kernel(kernel)
    found = build.solve(
        X, y, C / factor, loss, lambda A, B: factor * values(A, B), intercept, tol=TOL
    )
    optimum = best(loss, kernel, intercept)
    assert found.objective * factor == pytest.approx(optimum.primal, rel=2 * TOL)
    atol = 2 * np.sqrt(4 * TOL * max(optimum.primal, 1.0) * (K.diagonal().max() + 1))
    np.testing.assert_allclose(found.scores, optimum.scores, atol=atol)
    # the dual weights act through K alone
    np.testing.assert_allclose(K @ found.beta * factor, optimum.scores, atol=atol)


@each_loss
@each_kernel
def test_order_of_the_intercepts(loss, kernel):
    """P*(free) <= P*(K + 1) <= P*(none), and K + rho tends to free as rho grows."""
    X, y, C, _ = arrays(loss, kernel)
    none, regularized, free = (
        build.solve(X, y, C, loss, kernel, intercept, tol=TOL).objective
        for intercept in cases.INTERCEPTS
    )
    slack = 1 + 2 * TOL
    assert free <= regularized * slack and regularized <= none * slack
    assert free < none * (1 - 1e-6)
    values = cases.oracle_kernel(kernel)
    last = regularized
    for rho in (10.0, 1e4):
        found = build.solve(X, y, C, loss, lambda A, B, rho=rho: values(A, B) + rho, None, tol=1e-8)
        assert found.converged and found.gap <= 1e-8
        assert found.objective * (1 - found.gap) <= last
        last = found.objective
    # b^2 / (2 rho) is all that is left of the penalty
    b = best(loss, kernel, "free").b
    assert free * (1 - 1e-9) <= last
    assert last * (1 - found.gap) <= free * (1 + 1e-9) + b**2 / (2 * rho)


@each_loss
@each_kernel
@each_intercept
def test_warm_start_from_the_optimum_does_nothing(loss, kernel, intercept):
    X, y, C, _ = arrays(loss, kernel)
    problem = build.problem(X, y, C, loss, kernel, intercept)
    first, _ = build.run(problem, tol=1e-8)
    again, _ = build.run(problem, tol=1e-8 * (1 + 1e-6), start=first.beta)
    assert first.n_iter > 0 and again.n_iter == 0 and again.converged
    np.testing.assert_allclose(again.beta, first.beta, rtol=1e-12, atol=1e-14)
    from_oracle, _ = build.run(problem, tol=1e-8, start=best(loss, kernel, intercept).beta)
    assert from_oracle.n_iter == 0 and from_oracle.gap <= 1e-8


@each_loss
@each_intercept
@pytest.mark.parametrize("size", [2, 64, 512])
def test_size_of_the_working_set(loss, intercept, size):
    kernel = ("rbf", {"gamma": 0.5})
    X, y, C, _ = arrays(loss, kernel)
    found = build.solve(X, y, C, loss, kernel, intercept, tol=TOL, size=size)
    optimum = best(loss, kernel, intercept)
    assert found.converged
    assert found.objective == pytest.approx(optimum.primal, rel=2 * TOL)
    np.testing.assert_allclose(
        found.scores, optimum.scores, atol=np.sqrt(8 * TOL * max(optimum.primal, 1.0))
    )


LARGER = [
    r
    for r in RECORDS
    if r.data in ("moons", "diabetes") and r.kernel == "rbf" and r.intercept != "regularized"
]


def solve_record(record, X=None, **settings):
    """Solve a golden problem, by default to the tolerance of float64 tiles."""
    stored, *rest = record.problem()
    return build.solve(stored if X is None else X, *rest, **settings)


@pytest.mark.parametrize("record", LARGER, ids=lambda r: r.name)
def test_resources_do_not_change_the_result(record):
    """Threads, memory and the size of the working set: same optimum, up to rounding."""
    reference = solve_record(record, tol=TOL)
    assert reference.objective == pytest.approx(record.objective, rel=2 * TOL)
    atol = np.sqrt(8 * TOL * reference.objective)
    for settings in (
        {"threads": 2},
        {"threads": 5},
        {"memory": 1 << 14},
        {"memory": 1 << 19},
        {"size": 2},
        {"size": 64},
        {"size": 512},
    ):
        found = solve_record(record, tol=TOL, **settings)
        assert found.converged, settings
        assert found.objective == pytest.approx(reference.objective, rel=2 * TOL), settings
        np.testing.assert_allclose(decisions(found), decisions(reference), atol=atol)


@pytest.mark.parametrize("record", LARGER[::2], ids=lambda r: r.name)
def test_threads_agree_to_rounding(record):
    """The same path is taken with any number of threads: ties and order do not depend on them."""
    one, two, four = (solve_record(record, tol=1e-6, threads=t) for t in (1, 2, 4))
    for other in (two, four):
        assert other.n_iter == one.n_iter
        np.testing.assert_allclose(other.beta, one.beta, rtol=1e-6, atol=1e-8)


@each_loss
@each_kernel
@each_intercept
def test_types_and_storage_do_not_change_the_result(loss, kernel, intercept):
    """float32 rows, CSR rows, precomputed and Python kernels: one problem, one solution."""
    X, y, C, _ = arrays(loss, kernel)
    X = X.astype(np.float32)  # exactly representable in both types
    K = cases.oracle_kernel(kernel)(X, X)
    reference = build.solve(X.astype(float), y, C, loss, kernel, intercept, tol=TOL)
    atol = 2 * np.sqrt(4 * TOL * max(reference.objective, 1.0) * (K.diagonal().max() + 1))
    csr = cases.LAYOUTS["csr32"]
    forms = {
        "float32": (X, kernel),
        "F order": (np.asfortranarray(X.astype(float)), kernel),
        "csr": (csr(X.astype(float)), kernel),
        "csr float32": (csr(X), kernel),
        "precomputed": (K, "precomputed"),
        "callable": (X.astype(float), cases.oracle_kernel(kernel)),
    }
    for name, (form, how) in forms.items():
        found = build.solve(form, y, C, loss, how, intercept, tol=TOL)
        assert found.converged, name
        assert found.objective == pytest.approx(reference.objective, rel=2 * TOL), name
        np.testing.assert_allclose(decisions(found), decisions(reference), atol=atol, err_msg=name)


@each_loss
@each_kernel
@each_intercept
@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_single_precision_certificates_are_honest(loss, kernel, intercept, tol):
    """Loose tolerances may use float32 tiles; the gap that is reported holds in float64."""
    X, y, C, _ = arrays(loss, kernel)
    for dtype in cases.DTYPES:
        found = build.solve(X.astype(dtype), y, C, loss, kernel, intercept, tol=tol)
        exact = cases.oracle_kernel(kernel)(X.astype(dtype), X.astype(dtype))
        again = oracle.certify(exact, y, C, cases.oracle_loss(loss), intercept, found.beta)
        assert found.converged and found.gap <= tol
        assert again.gap <= tol * (1 + 1e-6)
        optimum = oracle.solve(exact, y, C, cases.oracle_loss(loss), intercept).primal
        assert optimum * (1 - 1e-10) <= found.objective <= optimum * (1 + 2 * tol)


@pytest.mark.parametrize(
    ("data", "kernel", "suboptimal"),
    [
        ("bc", ("rbf", {"gamma": 0.03125}), 2e-3),
        ("moons", ("rbf", {"gamma": 1.0}), 1e-2),
        ("iris", ("linear", {}), 5e-2),
    ],
    ids=["bc", "moons", "iris"],
)
def test_mass_crosses_blocks(data, kernel, suboptimal):
    """Sums held at zero block by block are stationary but wrong; the solver leaves such a point."""
    X, y = load(data)
    K = cases.oracle_kernel(kernel)(X, X)
    hinge = oracle.LOSSES["hinge"]()
    block = np.random.default_rng(0).integers(4, size=len(y))
    stuck = oracle.solve_with_block_sums(K, y, 1.0, hinge, block)
    optimum = oracle.solve(K, y, 1.0, hinge, "free")
    assert stuck.dual - optimum.dual > suboptimal * optimum.primal

    problem = build.problem(X, y, 1.0, ("hinge", {}), kernel, "free")
    found, _ = build.run(problem, tol=TOL, start=stuck.beta)
    assert found.converged
    assert found.objective == pytest.approx(optimum.primal, rel=2 * TOL)
    sums = np.bincount(block, weights=found.beta)
    assert np.abs(sums).max() > 1e-3 and abs(sums.sum()) < 1e-10


def test_problems_on_blocks_of_shared_data():
    """Pairs of classes are contiguous blocks of one data set; each equals its problem alone."""
    from sklearn.datasets import load_iris

    from margrave.kernels import Kernel
    from margrave.losses import Loss
    from margrave.problem import Data, Problem
    from margrave.progress import Progress
    from margrave.solvers import Settings, WorkingSet

    X, labels = load_iris(return_X_y=True)  # sorted by class
    starts = np.array([0, 50, 100, 150])
    data = Data(X, Kernel("rbf", gamma=0.5), starts)
    pairs = [(0, 1), (0, 2), (1, 2)]
    y = np.r_[np.ones(50), -np.ones(50)]
    problems = [Problem(data, pair, y, np.ones(100), Loss("hinge"), "free") for pair in pairs]
    with Progress(TOL, -1, None, None, 0, "test") as progress:
        settings = Settings(tol=TOL, memory_limit=1 << 26, threads=2, seed=0, progress=progress)
        solutions = WorkingSet().solve(problems, settings, None)
    for pair, found in zip(pairs, solutions, strict=True):
        rows = np.isin(labels, pair)
        alone = oracle.solve(
            oracle.rbf(X[rows], X[rows], gamma=0.5), y, 1.0, oracle.LOSSES["hinge"](), "free"
        )
        assert found.converged
        assert found.objective == pytest.approx(alone.primal, rel=2 * TOL)
        np.testing.assert_allclose(decisions(found), alone.decisions, atol=1e-4)
