"""Texts that the docstrings of several estimators share."""

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
        Kernel parameter, at least 0. "scale" is 1 / (n_features * variance of X), with
        the sample weights included in the variance; "auto" is 1 / n_features.
    degree : int, default=3
        Degree of the "poly" kernel.
    coef0 : float, default=0.0
        Constant of the "poly" and "sigmoid" kernels.
    power : float, default=1.0
        Power of the distance in the "laplacian" and "exponential" kernels, in (0, 1].""",
    "intercept": """\
        "free" does not penalise the intercept, as in LIBSVM; "regularized" adds 1 to the kernel,
        as in LIBLINEAR; None has no intercept.""",
    "class_weight": """\
    class_weight : dict, "balanced" or None, default=None
        Factor of C per class. "balanced": inversely proportional to the (weighted) class
        frequencies.""",
    "solver": """\
    solver : str or solver object, default="auto"
        "auto" chooses a solver, and `solver_` names it. "exact", "dc" (divide and conquer),
        "cascade", "sodm" and "dip" (which solve parts of the rows first) work for all problems;
        "cd" and "newton" for smooth losses without a free intercept, and with the linear kernel
        for all losses and intercepts; "svrg", "csvrg" and "dsvrg" for the linear kernel and
        smooth losses without a free intercept. Or an object from :mod:`margrave.solvers`. A
        combination that does not work raises a ValueError that names the alternatives.""",
    "hull_solver": """\
    solver : str or solver object, default="auto"
        How to solve: "auto" and "pairs" (any kernel), "pbm" (moving blocks; any kernel), "gilbert"
        (Frank-Wolfe; any kernel, best where many rows are at their caps), "saddle" (linear kernel),
        "exact", or an object from :mod:`margrave.solvers`.""",
    "budgets": """\
    engine : {"serial", "threads", "cuda", "dask", "mpi"}, engine or Dask client, default=None
        Where fits and predictions run: None for threads of this process, "cuda" for a graphics
        card, "dask", "mpi" or a client for many computers.
    tol : float, default=1e-3
        Relative duality gap (P + D) / max(\\|P\\|, \\|D\\|) at which the fit stops. This is not
        LIBSVM's tolerance on the KKT violation: it bounds how far the objective is from its
        optimum.
    max_iter : int, default=-1
        Rounds per problem; -1 for no limit.
    time_limit : float, default=None
        Seconds; the best model so far is kept, with its gap.
    memory_limit : int or str, default=None
        Bytes, or for example "4GiB", for cache and buffers in addition to the data; None for half
        of the memory available to the process.
    n_jobs : int, default=None
        Number of threads. None for all cores available to the process, or one inside a joblib
        worker.
    random_state : int, RandomState instance or None, default=None
        Seed of randomised solvers. None means a fixed seed, so that fits are repeatable.
    verbose : int, default=0
        1 shows a progress bar, 2 logs a line per round.
    warm_start : bool, default=False
        Start from the last solution. Its rows are recognised among those of the next fit, which may
        have others; see `row_ids` of `fit`.
    callbacks : callable or list of callables, default=None
        Called with every record of `history_` during the fit; one that returns True stops it.""",
    "stream": """\
    max_support : int, default=2000
        Number of rows that `partial_fit` keeps, at most.
    forget : float, default=0.0
        By how much the weight of kept rows falls with every batch of `partial_fit`, in [0, 1).""",
    "streamed": """\
    n_samples_seen_, n_dropped_ : int
        After `partial_fit`: rows seen, and support vectors for which there was no room.
    progressive_score_ : float
        After `partial_fit`: mean score (accuracy, R^2, or fraction of inliers) of rows that were
        predicted before they were learned; old batches fade as `forget` says.""",
    "classes": """\
    classes_ : ndarray of shape (n_classes,)
        Sorted labels; those that occur only with weight zero are left out.
    class_weight_ : ndarray of shape (n_classes,)
        Factor of C per class.
    support_ : ndarray of shape (n_SV,)
        Rows of X with a nonzero coefficient, grouped by class.
    support_vectors_ : {ndarray, sparse} of shape (n_SV, n_features)
        These rows; empty for a precomputed kernel. A linear model looks them up in X; if it was
        trained on rows outside memory, they are lost when it is pickled.
    n_support_ : ndarray of shape (n_classes,)
        Number of support vectors per class.""",
    "decision_functions": """\
    dual_coef_ : {ndarray, sparse} of shape (n_classes - 1, n_SV)
        Coefficients of the decision functions, laid out as in scikit-learn.
    intercept_ : ndarray of shape (n_problems,)
        Intercepts of the decision functions.
    coef_ : ndarray of shape (n_problems, n_features)
        Feature weights, for the linear kernel only.""",
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
        Feature weights, for the linear kernel only.""",
    "certificate": """\
    objective_ : float
        Primal value of the returned model (sum over the problems).
    gap_ : float
        Relative duality gap (the largest of the problems).
    objectives_, gaps_ : ndarray of shape (n_problems,)
        The same per problem.
    converged_ : bool
        Whether every gap is at most `tol`.
    n_iter_ : int, or ndarray of shape (n_problems,) of a classifier
        Rounds of the solver.
    solver_ : str
        Names of the solvers that were used.
    certificate_ : str
        "full": `gap_` is the gap of the whole problem. "blocks": the model consists of parts that
        were fitted independently, and `gap_` is the gap of these independent problems; `certify`
        computes the gap of the model for the whole problem. "features": the same for a model that
        is restricted to landmarks. "estimate": the fit was stopped before its certificate was
        computed; `gap_` is the solver's estimate, `converged_` is False, and `certify` computes
        the certificate.
    early_ : estimator
        The last model of parts before this one, for solvers that divide the rows. Callbacks can use
        it as soon as the first level is done. Later they get, after each round of moving blocks,
        the model of all rows so far, of each binary problem once its gap is below 0.1; `gap_` is
        that of the present point, also of local models after rounds of fixed blocks.
    history_ : list of dict
        One record per round: round, seconds, objective, gap, support and more.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if X had any.""",
}


def documented(owner: T) -> T:
    """Replace the lines ``<name>`` of a class's docstring by the shared texts."""
    for name, text in _TEXTS.items():
        for indent in ("    ", "        "):
            owner.__doc__ = (owner.__doc__ or "").replace(f"\n{indent}<{name}>\n", f"\n{text}\n")
    return owner
