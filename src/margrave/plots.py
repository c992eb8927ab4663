"""Plots of fitted estimators: margins, decision boundaries, convergence.

Each function draws on the given Axes or on new ones and returns them. matplotlib is only imported
when a function is called (extra ``plots``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margrave.extras import install
from margrave.progress import Record
from margrave.report.estimator import feature_names
from margrave.report.fit import runs_of
from margrave.report.input import is_frame
from margrave.report.scored import margins_of
from margrave.rows import is_csr
from margrave.typing import MatrixLike, VectorLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

T = TypeVar("T")
Floats = NDArray[np.float64]


class Classifier(Protocol):
    """A fitted classifier, also of another library."""

    classes_: NDArray[Any]

    @property
    def decision_function(self) -> Callable[..., ArrayLike]:
        """Scores of rows."""
        ...

    @property
    def predict(self) -> Callable[..., ArrayLike]:
        """Labels of rows."""
        ...


class Recorded(Protocol):
    """A fitted estimator with a history of its fit."""

    history_: list[Record]


# blue and orange first: they can be distinguished by colour-blind readers and in greyscale
_COLOURS = ("#2b6cb0", "#dd6b20", "#2f855a", "#805ad5", "#b83280", "#b7791f", "#319795", "#718096")
_INK = "#2d3748"
_POINTS = 2000  # rows drawn over a boundary: more would hide it


def margin_distribution(
    estimators: Classifier | Sequence[Classifier],
    X: MatrixLike,
    y: VectorLike,
    ax: Axes | None = None,
    labels: Sequence[str] | None = None,
) -> Axes:
    """Draw the distribution of the margins of labelled rows.

    The margin of a row is y f(x) for two classes, y = +-1; for more, the score of its class minus
    the best score of the others. Rows with negative margins are misclassified. For one estimator
    this is a histogram; for several, their cumulative distributions: the steeper the curve, the
    more similar the margins.

    Parameters
    ----------
    estimators : fitted classifier or sequence of them
        Anything with `decision_function` and `classes_`.
    X, y : array-like
        Rows and their labels.
    ax : matplotlib Axes, optional
        Where to draw.
    labels : sequence of str, optional
        Names of the estimators; their class names by default.

    Returns
    -------
    ax : matplotlib Axes
    """
    models = _several(estimators)
    for model in models:
        if not hasattr(model, "classes_"):
            raise ValueError(
                f"{type(model).__name__} is no fitted classifier, and has no margins: for a"
                " regressor, its report shows the residuals"
            )
    names = _names(models, labels)
    ax = _axes(ax)
    samples = [margins(model, X, y) for model in models]
    # a few extreme rows must not squeeze the rest into one bar: the outer bins include the tails
    low = min(float(np.quantile(sample, 0.002)) for sample in samples)
    high = max(float(np.quantile(sample, 0.998)) for sample in samples)
    low, high = min(low, -0.1), max(high, 1.1)
    ax.axvspan(low, 0.0, color="#fed7d7", alpha=0.45, lw=0, zorder=0)
    draw = _histogram if len(models) == 1 else _cumulative
    for name, sample, colour in zip(names, samples, _palette(len(models)), strict=True):
        wrong = 100 * float(np.mean(sample < 0))
        draw(ax, sample, low, high, colour, f"{name}: {wrong:.1f} % below zero")
    marks = [(0.0, "-", "misclassified", "right", -6.0)]
    if all(len(model.classes_) == 2 for model in models):  # not meaningful for votes
        marks.append((1.0, "--", "margin 1", "left", 6.0))
    for place, style, text, side, shift in marks:
        ax.axvline(place, color=_INK, lw=1.0, ls=style, zorder=1)
        ax.annotate(
            text, (place, 0.97), xycoords=ax.get_xaxis_transform(), xytext=(shift, 0.0),
            textcoords="offset points", ha=side, va="top", fontsize=9, color=_INK,
        )  # fmt: skip
    ax.set_xlim(low, high)
    ax.set_ylim(0.0, ax.get_ylim()[1] * 1.05 if len(models) == 1 else 100.0)
    bands = "; bands: the middle 80 % of the rows of each model"
    ax.set_xlabel("margin" + (bands if len(models) > 1 else ""))
    ax.set_ylabel("share of rows (%)" if len(models) == 1 else "rows with at most this margin (%)")
    room = 12.0 + 16.0 * len(models)  # for the legend below the title
    ax.set_title("Margin distribution", loc="left", fontweight="bold", color=_INK, pad=room)
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.01, 1.0), borderpad=0.0)
    return _polish(ax)


def decision_boundary(
    estimator: Classifier,
    X: MatrixLike,
    y: VectorLike,
    ax: Axes | None = None,
    resolution: int = 300,
) -> Axes:
    """Draw the decision boundary of a classifier with two features, and some of the rows.

    For two classes the shade is the score, the solid line is the boundary and the dashed lines are
    the margins +-1; for more classes each region has the colour of its class.

    Parameters
    ----------
    estimator : fitted classifier
        Anything with `predict`, `decision_function` and `classes_`.
    X, y : array-like
        Rows with two features, and their labels.
    ax : matplotlib Axes, optional
        Where to draw.
    resolution : int, default=300
        Grid points per axis.

    Returns
    -------
    ax : matplotlib Axes
    """
    points = X.toarray() if is_csr(X) else np.asarray(X)
    y = np.asarray(y)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"a boundary needs exactly two features, but X has shape {points.shape}")
    ax = _axes(ax)
    classes = np.asarray(estimator.classes_)
    colours = _palette(len(classes))
    xs, ys = (_span(points[:, axis], resolution) for axis in (0, 1))
    grid = np.stack([part.ravel() for part in np.meshgrid(xs, ys)], axis=1).astype(points.dtype)
    if len(classes) == 2:
        _shade_scores(ax, xs, ys, _of_arrays(estimator.decision_function, grid), colours)
    else:
        _shade_classes(ax, xs, ys, _of_arrays(estimator.predict, grid), classes, colours)

    shown = np.random.default_rng(0).permutation(len(y))[:_POINTS]
    for label, colour in zip(classes, colours, strict=True):
        rows = shown[y[shown] == label]
        ax.scatter(
            points[rows, 0],
            points[rows, 1],
            s=9,
            color=colour,
            edgecolor="white",
            linewidth=0.3,
            label=f"class {label}",
        )
    names = X.columns if is_frame(X) else feature_names(estimator)
    ax.set_xlabel("feature 1" if names is None else str(names[0]))
    ax.set_ylabel("feature 2" if names is None else str(names[1]))
    ax.set_xlim(xs[0], xs[-1])
    ax.set_ylim(ys[0], ys[-1])
    ax.set_title("Decision boundary", loc="left", fontweight="bold", color=_INK)
    legend = ax.legend(loc="upper right", framealpha=0.9, markerscale=2.0)
    legend.get_frame().set_linewidth(0.0)
    return _polish(ax)


def convergence(
    estimators: Recorded | Sequence[Recorded],
    ax: Axes | None = None,
    labels: Sequence[str] | None = None,
) -> Axes:
    """Draw the relative duality gap and the objective over the time of the fit.

    The gap is on the left axis, the objective (dashed) on the right one.

    Parameters
    ----------
    estimators : fitted estimator or sequence of them
        Anything with `history_`.
    ax : matplotlib Axes, optional
        Where to draw.
    labels : sequence of str, optional
        Names of the estimators; their class names by default.

    Returns
    -------
    ax : matplotlib Axes
        The axes of the gap.
    """
    models = _several(estimators)
    names = _names(models, labels)
    ax = _axes(ax)
    right = ax.twinx()
    for name, model, colour in zip(names, models, _palette(len(models)), strict=True):
        # a history can contain several binary problems: one line for each
        for number, part in enumerate(runs_of(model.history_)):
            seconds, objective, gap = (
                [record[key] for record in part] for key in ("seconds", "objective", "gap")
            )
            ax.plot(
                seconds, gap, color=colour, lw=1.8, marker="o", ms=3.0,
                label=None if number else f"{name}: gap",
            )  # fmt: skip
            right.plot(seconds, objective, color=colour, lw=1.0, ls="--", alpha=0.8)
        if hasattr(model, "tol") and model.tol is not None:
            ax.axhline(model.tol, color=colour, lw=1.0, ls=":")
    ax.plot([], [], color=_INK, lw=1.0, ls="--", label="objective")
    ax.set_yscale("log")
    values = [r["objective"] for model in models for r in model.history_ if r["objective"] > 0]
    if values and max(values) > 30 * min(values):
        right.set_yscale("log")
    ax.set_xlabel("seconds")
    ax.set_ylabel("relative duality gap")
    right.set_ylabel("objective")
    room = 12.0 + 16.0 * (len(models) + 1)  # for the legend below the title
    ax.set_title("Convergence", loc="left", fontweight="bold", color=_INK, pad=room)
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.01, 1.0), borderpad=0.0)
    _polish(right).spines["right"].set_visible(True)
    return _polish(ax)


def margins(estimator: Classifier, X: MatrixLike, y: VectorLike) -> Floats:
    """Margin of each row: y f(x), or for several classes own score minus best other score."""
    classes = np.asarray(estimator.classes_)
    y = np.asarray(y)
    unknown = np.setdiff1d(y, classes)
    if unknown.size:
        raise ValueError(f"y contains labels that were not in training: {unknown.tolist()}")
    own = np.searchsorted(classes, y)
    scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
    if scores.ndim > 1 and scores.shape[1] != len(classes):
        raise ValueError("margins need one score per class: set decision_function_shape='ovr'")
    return margins_of(scores, own)


def _histogram(ax: Axes, sample: Floats, low: float, high: float, colour: str, label: str) -> None:
    bins = np.linspace(low, high, 90)
    height, _ = np.histogram(np.clip(sample, low, high), bins=bins)
    share = 100.0 * height / len(sample)
    ax.stairs(share, bins, fill=True, color=colour, alpha=0.25)
    ax.stairs(share, bins, color=colour, lw=1.6, label=label)


def _cumulative(ax: Axes, sample: Floats, low: float, high: float, colour: str, label: str) -> None:
    ordered = np.sort(sample)
    share = 100.0 * np.arange(1, len(ordered) + 1) / len(ordered)
    ax.step(
        np.r_[low, ordered, high], np.r_[0.0, share, 100.0], where="post", color=colour, lw=1.8,
        label=label,
    )  # fmt: skip
    middle = np.quantile(ordered, [0.1, 0.9])  # the middle 80 %
    ax.hlines([10.0, 90.0], low, middle, color=colour, lw=0.6, ls=":")
    ax.axvspan(*middle, color=colour, alpha=0.08, lw=0, zorder=0)


# --- helpers -------------------------------------------------------------------------------------


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(f"plots need matplotlib: {install('plots')}") from error
    return pyplot


def _axes(ax: Axes | None) -> Axes:
    if ax is None:
        new: Axes
        _, new = _pyplot().subplots(figsize=(7.0, 4.6), layout="constrained")
        return new
    return ax


def _polish(ax: Axes) -> Axes:
    """Remove the frame and make ticks grey."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color("#a0aec0")
    ax.tick_params(colors="#4a5568", labelsize=9)
    return ax


def _palette(n: int) -> list[str]:
    if n <= len(_COLOURS):
        return list(_COLOURS[:n])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["turbo"](i / (n - 1))) for i in range(n)]


def _several(estimators: T | Sequence[T]) -> list[T]:
    return list(estimators) if isinstance(estimators, Sequence) else [estimators]


def _names(models: Sequence[object], labels: Sequence[str] | None) -> list[str]:
    if labels is None:
        return [type(model).__name__ for model in models]
    names = [labels] if isinstance(labels, str) else list(labels)
    if len(names) != len(models):
        raise ValueError(f"{len(names)} labels for {len(models)} estimators")
    return names


def _span(values: NDArray[Any], resolution: int) -> Floats:
    low, high = np.quantile(values, [0.0005, 0.9995])  # ignore single outliers
    pad = 0.06 * (high - low) or 1.0
    return np.linspace(low - pad, high + pad, resolution)


def _of_arrays(method: Callable[..., ArrayLike], grid: NDArray[Any]) -> NDArray[Any]:
    """Evaluate on an array without warnings about missing feature names."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return np.asarray(method(grid))


def _shade_scores(ax: Axes, xs: Floats, ys: Floats, scores: Floats, colours: list[str]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("scores", [colours[0], "#ffffff", colours[1]])
    Z = scores.reshape(len(ys), len(xs))
    ax.imshow(
        Z, cmap=shades, vmin=-2.0, vmax=2.0, alpha=0.6, origin="lower", aspect="auto",
        extent=(xs[0], xs[-1], ys[0], ys[-1]), interpolation="bilinear",
    )  # fmt: skip
    ax.contour(
        xs, ys, Z, levels=[-1.0, 0.0, 1.0], colors=_INK, linestyles=["--", "-", "--"],
        linewidths=[0.8, 1.8, 0.8],
    )  # fmt: skip
    ax.plot([], [], color=_INK, lw=1.8, label="boundary: score 0")
    ax.plot([], [], color=_INK, lw=0.8, ls="--", label="margins: scores \u22121 and 1")


def _shade_classes(
    ax: Axes,
    xs: Floats,
    ys: Floats,
    labels: NDArray[Any],
    classes: NDArray[Any],
    colours: list[str],
) -> None:
    from matplotlib.colors import ListedColormap

    Z = np.searchsorted(classes, labels).reshape(len(ys), len(xs))
    ax.pcolormesh(
        xs, ys, Z, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(classes) - 0.5, alpha=0.3,
        shading="nearest", rasterized=True, linewidth=0,
    )  # fmt: skip
    for c in range(len(classes)):
        ax.contour(xs, ys, np.equal(Z, c).astype(float), levels=[0.5], colors=_INK, linewidths=1.0)
