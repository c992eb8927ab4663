"""Losses, described by name and parameters.

A loss enters the dual through h_i(beta) = C_i loss_i*(-beta / C_i). The arithmetic (value,
conjugate, box, gap term) is compiled once for every loss in ``cpp/loss.hpp``, and exact steps in
``cpp/exact_step.hpp``; here a loss is a small immutable object that can be pickled and names its
compiled counterpart.

"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from margrave import _core

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

_SMALLEST = 1e-300  # stands for a share of zero, as in the compiled solver

# name -> the parameters that the loss reads, straight from the compiled table
LOSSES: dict[str, tuple[str, ...]] = dict(_core.LOSSES)
SMOOTH_LOSSES = tuple(name for name in LOSSES if _core.Loss(name).smooth)

# parameter of a loss -> its allowed values
_ALLOWED: dict[str, tuple[Callable[[float], bool], str]] = {
    "epsilon": (lambda value: 0.0 <= value < math.inf, "a number >= 0"),
    "theta": (lambda value: 0.0 <= value < 1.0, "in [0, 1)"),
    "upsilon": (lambda value: 0.0 <= value < math.inf, "a number >= 0"),
    "quantile": (lambda value: 0.0 < value < 1.0, "in (0, 1)"),
}


@dataclass(frozen=True)
class Loss:
    """A loss by name, with its parameters.

    Parameters
    ----------
    name : str
        One of ``LOSSES``.
    epsilon : float, default=0.0
        Half width of the insensitive tube (the eps-insensitive losses).
    theta : float, default=0.0
        Half width of the band of margins without a loss (margin distribution), in [0, 1).
    upsilon : float, default=0.0
        Penalty of too large margins relative to too small ones (margin distribution), >= 0.
    quantile : float, default=0.5
        Fraction of the targets that should lie below the score (pinball), in (0, 1).

    Examples
    --------
    >>> Loss("epsilon_insensitive", epsilon=0.1).numbers
    {'epsilon': 0.1}
    """

    name: str
    epsilon: float = 0.0
    theta: float = 0.0
    upsilon: float = 0.0
    quantile: float = 0.5

    def __post_init__(self) -> None:
        if self.name not in LOSSES:
            raise ValueError(f"unknown loss {self.name!r}; known losses: {', '.join(LOSSES)}")
        for name, value in self.numbers.items():
            is_allowed, text = _ALLOWED[name]
            if not is_allowed(value):
                raise ValueError(f"{name} must be {text}, got {value!r}")

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that the loss reads, by name."""
        return {name: getattr(self, name) for name in LOSSES[self.name]}

    @property
    def is_dense(self) -> bool:
        """Whether nearly every row has a nonzero variable that is not at its bound."""
        return self.name == "logistic" or (
            self.name == "margin_distribution" and self.upsilon > 0.0
        )

    @property
    def is_averaged(self) -> bool:
        """Whether C is the penalty of all rows together, however many there are."""
        return self.name == "margin_distribution"

    def steepest(self, y: Floats, C: Floats) -> Floats:
        """Largest second derivative of each row's loss over all scores, for smooth losses.

        It is attained at the target, at zero, or far from the target on either side.
        """
        core, far = self.core(), 3.0 + self.epsilon + np.abs(y)
        found = [core.second_derivative(y, C, f) for f in (y, np.zeros_like(y), y - far, y + far)]
        largest: Floats = np.max(found, axis=0)
        return largest

    def core(self, floor: float = 0.0) -> _core.Loss:
        """Return the compiled loss.

        `floor` is the smallest fraction of C that counts as nonzero, for losses whose dual
        variables never reach their bounds.
        """
        return _core.Loss(self.name, floor=floor, **self.numbers)


# the numbers of all losses, by name
NUMBERS = tuple(field.name for field in fields(Loss) if field.name != "name")


@dataclass(frozen=True)
class JointLoss:
    """A loss of the scores of all classes; its steps are compiled in ``cpp/joint_loss.hpp``.

    ``value(f, y)`` is the loss of each row, ``conjugate(p, y)`` the dual's term of a point p_i of
    the simplex, where beta_i = C_i (e_y - p_i), and ``rates(p, y)`` are its derivatives.
    """

    value: Callable[[Floats, Labels], Floats]
    conjugate: Callable[[Floats, Labels], Floats]
    rates: Callable[[Floats, Labels], Floats]


class DualTerms(Protocol):
    """The terms h_i of the dual: what a joint loss and the compiled losses have in common."""

    def conjugate(self, y: NDArray[Any], C: Floats, beta: Floats) -> Floats:
        """h_i(beta_i)."""
        ...

    def right_derivative(self, y: NDArray[Any], C: Floats, beta: Floats) -> Floats:
        """Derivatives to the right, one per variable."""
        ...

    def left_derivative(self, y: NDArray[Any], C: Floats, beta: Floats) -> Floats:
        """Derivatives to the left, one per variable."""
        ...

    def box(self, y: NDArray[Any], C: Floats) -> tuple[Floats, Floats]:
        """Bounds of the variables."""
        ...


class JointTerms:
    """The terms h_i of a joint loss, one variable per row and class."""

    def __init__(self, loss: str, n_classes: int) -> None:
        self.loss, self.n_classes = JOINT_LOSSES[loss], n_classes

    def conjugate(self, y: Labels, C: Floats, beta: Floats) -> Floats:
        """C_i h(p_i)."""
        return C * self.loss.conjugate(shares_of(y, C, beta), y)

    def right_derivative(self, y: Labels, C: Floats, beta: Floats) -> Floats:
        """Derivatives with respect to beta_i = C_i (e_y - p_i)."""
        return -self.loss.rates(shares_of(y, C, beta), y)

    left_derivative = right_derivative

    def box(self, y: Labels, C: Floats) -> tuple[Floats, Floats]:
        """A row's own class has variables from 0 to C_i, the others from -C_i to 0."""
        own = np.eye(self.n_classes)[y] * C[:, None]
        return own - C[:, None], own


def shares_of(y: Labels, C: Floats, beta: Floats) -> Floats:
    """Points p_i of the simplex behind the dual variables beta_i = C_i (e_y - p_i)."""
    shares: Floats = -beta / C[:, None]
    shares[np.arange(len(y)), y] += 1.0
    return np.maximum(shares, 0.0)


def _own(values: Floats, y: Labels) -> Floats:
    found: Floats = values[np.arange(len(y)), y]
    return found


def _largest(f: Floats) -> Floats:
    """max_c f_c; column by column, which is many times faster than along short rows."""
    found: Floats = f[:, 0].copy()
    for column in f.T[1:]:
        np.maximum(found, column, out=found)
    return found


def _margin(f: Floats, y: Labels) -> Floats:
    """max_c ([c != y] + f_c) - f_y."""
    ahead = (f - _own(f, y)[:, None]) + 1.0
    ahead[np.arange(len(y)), y] = 0.0  # exactly: a rounded one would be multiplied by C
    return _largest(ahead)


def _log_loss(f: Floats, y: Labels) -> Floats:
    """log sum_c exp(f_c) - f_y."""
    largest = _largest(f)
    total = np.zeros(len(f))
    for column in f.T:
        total += np.exp(column - largest)
    return (largest - _own(f, y)) + np.log(total)


JOINT_LOSSES = {
    "crammer_singer": JointLoss(
        _margin, lambda p, y: _own(p, y) - 1.0, lambda p, y: np.eye(p.shape[1])[y]
    ),
    "softmax": JointLoss(
        _log_loss,
        lambda p, y: xlogy(p, p).sum(axis=1),
        lambda p, y: 1.0 + np.log(np.maximum(p, _SMALLEST)),
    ),
}
