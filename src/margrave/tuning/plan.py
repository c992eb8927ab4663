"""The order in which the settings of a grid are fitted.

Settings with the same kernel share kernel values. Among these, settings that differ in numbers on
which the solution depends continuously form a line, along which each starts from the solution of
the last:

    kernel and its gamma   >   line: everything except C, nu, ...   >   C ascending
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline

from margrave import kernels, losses
from margrave.estimators._base import KernelEstimator

# what kernel values depend on, with the constant that a regularised intercept adds
_KERNEL = ("kernel", *kernels.NUMBERS, "intercept")
# the solution depends continuously on these; the one that varies most is last
_CONTINUOUS = ("nu", *losses.NUMBERS, "lam", "C")


@dataclass(frozen=True)
class Setting:
    """One point of the grid.

    Settings of the same `kernel` have the same kernel values on the same rows; settings of the same
    `line` have similar solutions if they are close in the order of `place`.
    """

    number: int
    params: dict[str, Any]
    kernel: Hashable
    line: Hashable
    place: tuple[float, ...] = ()
    gamma: float = 0.0  # zero if it is not a number


def final_estimator(estimator: BaseEstimator) -> KernelEstimator | None:
    """Return the estimator of this package that an estimator is, or that a pipeline ends with."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    return last if isinstance(last, KernelEstimator) else None


def settings_of(estimator: BaseEstimator, grid: Sequence[dict[str, Any]]) -> list[Setting]:
    """Create the settings; raises for parameters that the estimator does not have."""
    return [_setting(number, params, estimator) for number, params in enumerate(grid)]


def _setting(number: int, params: dict[str, Any], estimator: BaseEstimator) -> Setting:
    model = clone(estimator).set_params(**clone(params, safe=False))
    final = final_estimator(model)
    if final is None:
        return Setting(number, params, number, number)
    own = final.get_params(deep=True)
    before = {}  # parameters of the preceding steps
    if isinstance(model, Pipeline):
        last = model.steps[-1][0]
        before = {
            name: value
            for name, value in model.get_params(deep=True).items()
            if name.partition("__")[0] not in (last, "steps")
        }
    numbers = [name for name in _CONTINUOUS if isinstance(own.get(name), (int, float))]
    rest = {name: value for name, value in own.items() if name not in numbers}
    return Setting(
        number,
        params,
        kernel=_key({**before, **{name: own[name] for name in _KERNEL if name in own}}),
        line=_key({**before, **{f" {name}": value for name, value in rest.items()}}),
        place=tuple(float(own[name]) for name in numbers),
        gamma=float(own["gamma"]) if isinstance(own.get("gamma"), (int, float)) else 0.0,
    )


def _key(params: dict[str, Any]) -> Hashable:
    """Parameters as a hashable key."""
    return tuple((name, _hashable(params[name])) for name in sorted(params))


def _hashable(value: object) -> Hashable:
    if isinstance(value, BaseEstimator):  # its parameters are listed separately
        return str(type(value))
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
