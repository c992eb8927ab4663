"""Settings of a grid in the order in which they help each other.

Settings with the same kernel share kernel values. Among these, settings that differ in numbers by
which the solution changes continuously form a line, along which each starts from the solution of
the last:

    kernel and its gamma   >   line: all else but C, nu, ...   >   C ascending
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline

from margrave import kernels, losses
from margrave.estimators._base import KernelMachine

# what kernel values depend on, with the constant that a regularised intercept adds
_KERNEL = ("kernel", *kernels.NUMBERS, "intercept")
# what a solution follows continuously, the one with the longest way last
_CONTINUOUS = ("nu", *losses.NUMBERS, "lam", "C")


@dataclass(frozen=True)
class Setting:
    """One point of the grid.

    Settings of the same `kernel` have the same kernel values on the same rows, settings of the same
    `line` solutions that are near each other, in the order of `place`.
    """

    number: int
    params: dict[str, Any]
    kernel: Hashable
    line: Hashable
    place: tuple[float, ...] = ()
    gamma: float = 0.0  # zero where it is no number


def machine_of(estimator: Any) -> KernelMachine | None:
    """Return the kernel machine that an estimator is or ends with."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    return last if isinstance(last, KernelMachine) else None


def settings_of(estimator: Any, grid: Sequence[dict[str, Any]]) -> list[Setting]:
    """Make the settings; raises for parameters that the estimator does not have."""
    return [_setting(number, params, estimator) for number, params in enumerate(grid)]


def _setting(number: int, params: dict[str, Any], estimator: Any) -> Setting:
    model = clone(estimator).set_params(**clone(params, safe=False))
    machine = machine_of(model)
    if machine is None:
        return Setting(number, params, number, number)
    own = machine.get_params(deep=True)
    before = {}  # parameters of the steps in front
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
    """Values of parameters as something that can be looked up."""
    return tuple((name, _hashable(params[name])) for name in sorted(params))


def _hashable(value: Any) -> Hashable:
    if isinstance(value, BaseEstimator):  # its parameters are there themselves
        return str(type(value))
    try:
        hash(value)
    except TypeError:
        return repr(value)
    found: Hashable = value
    return found
