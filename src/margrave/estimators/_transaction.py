"""Fits are transactions: all fitted attributes are set at once, or none.

`fit` works on a draft, a copy of the estimator. The draft's attributes are transferred to the
estimator by one assignment: when `fit` returns, or when Ctrl-C or a warning turned into an error
ends it after `complete` was called. A fit that ends in any other way leaves the estimator
unchanged.

Only the early model is available before the end, for callbacks: see `show_early`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sklearn.base import BaseEstimator

from margrave.estimators._early import EarlyModel

F = TypeVar("F", bound=Callable[..., Any])
Attributes = dict[str, Any]

_DRAFT = "_draft"  # the attribute that marks a draft; it is never pickled
_EARLY = "_early"  # the attribute behind `early_`


@dataclass
class Draft:
    """State of a fit."""

    owner: BaseEstimator  # the estimator that will get the attributes
    is_complete: bool = False


def transaction(fit: F) -> F:
    """Decorate `fit`: it works on a draft, which replaces the estimator's attributes at the end."""

    @functools.wraps(fit)
    def fitted(self: BaseEstimator, *args: object, **kwargs: object) -> BaseEstimator:
        if _DRAFT in vars(self):  # called from another fit of the same estimator
            return fit(self, *args, **kwargs)
        before = dict(vars(self))
        draft, known = object.__new__(type(self)), Draft(self)
        vars(draft).update(before, **{_DRAFT: known})
        after = before
        # Python handles signals after calls: none can arrive between the end of the inner block and
        # the assignment
        try:
            try:
                vars(self).pop(_EARLY, None)
                fit(draft, *args, **kwargs)
            except (KeyboardInterrupt, Warning):
                after = _merged(vars(self), before, vars(draft) if known.is_complete else before)
                raise
            except BaseException as error:
                # Ctrl-C in the standard library's locks may surface as "release unlocked lock"
                context = error.__context__ if isinstance(error, RuntimeError) else None
                struck = isinstance(context, KeyboardInterrupt)
                kept = struck and known.is_complete
                after = _merged(vars(self), before, vars(draft) if kept else before)
                if struck:
                    raise KeyboardInterrupt from error
                raise
            after = _merged(vars(self), before, vars(draft))
        finally:
            self.__dict__ = after
        return self

    return fitted  # type: ignore[return-value]


def complete(draft: BaseEstimator) -> None:
    """Mark the draft as a complete model, which Ctrl-C must not discard."""
    vars(draft)[_DRAFT].is_complete = True


def is_draft(estimator: BaseEstimator) -> bool:
    """Whether a fit is running on this copy."""
    return _DRAFT in vars(estimator)


def is_mark(name: str) -> bool:
    """Whether an attribute belongs to the transaction."""
    return name == _DRAFT


def show_early(draft: BaseEstimator, early: EarlyModel) -> None:
    """Give the estimator the early models of the fit, for callbacks."""
    draft._early = early
    vars(draft)[_DRAFT].owner._early = early


def without_draft(state: Attributes) -> Attributes:
    """The attributes of a draft without the mark."""
    return {name: value for name, value in state.items() if name != _DRAFT}


def _merged(now: Attributes, before: Attributes, found: Attributes) -> Attributes:
    """Current attributes (callbacks may have set some) with the changes of the fit."""
    kept = {
        name: value
        for name, value in now.items()
        if name != _EARLY and (name in found or name not in before)
    }
    changed = {
        name: value
        for name, value in without_draft(found).items()
        if name == _EARLY or name not in before or value is not before[name]
    }
    return {**kept, **changed}
