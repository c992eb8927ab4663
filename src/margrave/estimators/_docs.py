"""What the docstrings of all estimators share."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bound=type)

_TEXTS = {
    "kernel": """\
    kernel : str or callable, default="rbf"
        "rbf", "linear", "poly", "sigmoid", "laplacian", "exponential", "matern32", "matern52" or
        "precomputed". A callable gets two arrays of rows and returns the matrix of kernel values.
        With "precomputed", X is the kernel matrix: square in `fit`, one column per training row
        later.
    gamma : {"scale", "auto"} or float, default="scale"
        Kernel parameter, at least 0. "scale" is 1 / (n_features * variance of X), where weights
        count as repeated rows; "auto" is 1 / n_features.
    degree : int, default=3
        Degree of the "poly" kernel.
    coef0 : float, default=0.0
        Constant of the "poly" and "sigmoid" kernels.
    power : float, default=1.0
        Power of the distance in the "laplacian" and "exponential" kernels, in (0, 1].""",
    "intercept": """\
        "free" does not penalise the intercept, as in LIBSVM; "regularized" adds 1 to the kernel;
        None has no intercept.""",
    "class_weight": """\
    class_weight : dict, "balanced" or None, default=None
        Factor of a row's weight per class. "balanced": inverse to the (weighted) frequencies.""",
    "solver": """\
    solver : str or solver object, default="auto"
        How to solve: "auto", which `solver_` then names; "exact" (everything); "cd" and "newton"
        (smooth losses without a free intercept; all losses and intercepts for the linear kernel);
        "svrg", "csvrg" and "dsvrg" (linear kernel, smooth losses without a free intercept); "dc"
        (by way of clusters), "cascade", "sodm" and "dip" (everything, in parts at first); or an
        object from :mod:`margrave.solvers`. A wrong pairing raises a ValueError that says what
        would work.""",
    "budgets": """\
    engine : {"serial", "threads"} or engine object, default=None
        Where solvers with several workers run; None is this machine's threads.
    tol : float, default=1e-3
        Relative duality gap (P + D) / max(\\|P\\|, \\|D\\|) at which the fit stops. This is not
        LIBSVM's tolerance on the optimality conditions: it bounds how far the objective is from
        its optimum.
    max_iter : int, default=-1
        Rounds per problem; -1 for no limit.
    time_limit : float, default=None
        Seconds; the best model so far is kept, with its gap.
    memory_limit : int or str, default=None
        Bytes, or for example "4GiB", for cache and buffers beyond the data; None is half of the
        memory available to the process.
    n_jobs : int, default=None
        Threads. None is all cores of the process, or one inside a joblib worker.
    random_state : int, RandomState instance or None, default=None
        Seed for what solvers draw. None is a fixed seed, so that equal fits give equal models.
    verbose : int, default=0
        1 shows a progress bar, 2 logs a line per round.
    warm_start : bool, default=False
        Start from the last solution if the number of rows is the same.
    callbacks : callable or list of callables, default=None
        Each gets every record of `history_` while the fit runs; one that returns True stops it.""",
    "classes": """\
    classes_ : ndarray of shape (n_classes,)
        Labels; those that occur only with weight zero are left out.
    class_weight_ : ndarray of shape (n_classes,)
        Factor of a row's weight per class.
    support_ : ndarray of shape (n_SV,)
        Rows of X with a nonzero coefficient, grouped by class.
    support_vectors_ : {ndarray, sparse} of shape (n_SV, n_features)
        These rows; empty for a precomputed kernel. A linear model looks them up in X; trained on
        rows outside memory, it forgets them when pickled.
    n_support_ : ndarray of shape (n_classes,)
        Number of support vectors per class.""",
    "support": """\
    support_ : ndarray of shape (n_SV,)
        Rows of X with a nonzero coefficient.
    support_vectors_ : {ndarray, sparse} of shape (n_SV, n_features)
        These rows; empty for a precomputed kernel.
    n_support_ : ndarray of shape (1,)
        Number of support vectors.
    dual_coef_ : {ndarray, sparse} of shape (1, n_SV)
        Coefficients of the support vectors.
    coef_ : ndarray of shape (1, n_features)
        Weights of the features, for the linear kernel only.""",
    "certificate": """\
    objective_ : float
        Primal value of the returned model (sum over the problems).
    gap_ : float
        Relative duality gap (worst of the problems).
    objectives_, gaps_ : ndarray of shape (n_problems,)
        The same per problem.
    converged_ : bool
        Whether every gap is at most `tol`.
    n_iter_ : int
        Rounds of the solver, all problems together.
    solver_ : str
        What solved the problem.
    certificate_ : str
        "full": `gap_` is that of the whole problem. "blocks": the model is made of parts that know
        nothing of each other, and `gap_` is that of the parts' own problem; `certify` tells how far
        the parts together are from the whole problem's optimum. "features": the same for a machine
        that is restricted to landmarks. "estimate": the fit was stopped before its certificate was
        computed; `gap_` is what the solver knew, `converged_` is False, and `certify` computes it.
    early_ : estimator
        The last model of parts on the way to this one, for solvers that divide the rows; there is
        one as soon as the first level is done, for callbacks to use.
    history_ : list of dict
        One record per round: round, seconds, objective, gap, support and more.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if X had any.""",
}


def documented(owner: T) -> T:
    """Put the shared texts into a class's docstring, where it says ``<name>`` on a line."""
    for name, text in _TEXTS.items():
        for indent in ("    ", "        "):
            owner.__doc__ = (owner.__doc__ or "").replace(f"\n{indent}<{name}>\n", f"\n{text}\n")
    return owner
