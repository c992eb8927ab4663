"""Fits are transactions: what a fit finds appears on the estimator all at once, or not at all.

`fit` works on a draft, a copy of the estimator. What it has set there comes to the estimator by one
assignment: when `fit` returns, or when Ctrl-C or a warning that is an error cuts it off after
`complete` was called. A fit that ends in any other way leaves the estimator as it was.

`early_` alone is shown before the end, for callbacks: see `show_early`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
Attributes = dict[str, Any]

_DRAFT = "_draft"  # the attribute that marks a draft; it is never pickled


@dataclass
class Draft:
    """What a draft knows of its fit."""

    owner: Any  # the estimator that is to have the attributes
    is_complete: bool = False


def transaction(fit: F) -> F:
    """Decorate `fit`: it works on a draft, which replaces the estimator's attributes at the end."""

    @functools.wraps(fit)
    def fitted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _DRAFT in vars(self):  # a fit within a fit is a part of it
            return fit(self, *args, **kwargs)
        before = dict(vars(self))
        draft, known = object.__new__(type(self)), Draft(self)
        vars(draft).update(before, **{_DRAFT: known})
        after = before
        # Python handles signals after calls: none comes between the end of the inner block, however
        # it ends, and the assignment
        try:
            try:
                vars(self).pop("early_", None)
                fit(draft, *args, **kwargs)
            except (KeyboardInterrupt, Warning):
                after = _merged(vars(self), before, vars(draft) if known.is_complete else before)
                raise
            except BaseException:
                after = _merged(vars(self), before, before)
                raise
            after = _merged(vars(self), before, vars(draft))
        finally:
            self.__dict__ = after
        return self

    return fitted  # type: ignore[return-value]


def complete(draft: Any) -> None:
    """Declare the draft of a fit a whole model: everything that belongs to it is stored."""
    vars(draft)[_DRAFT].is_complete = True


def show_early(draft: Any, early: Any) -> None:
    """Store an early model, which callbacks see on the estimator while the fit goes on."""
    draft.early_ = early
    vars(draft)[_DRAFT].owner.early_ = early


def without_draft(state: Attributes) -> Attributes:
    """The attributes of a draft that make sense outside of its fit."""
    return {name: value for name, value in state.items() if name != _DRAFT}


def _merged(now: Attributes, before: Attributes, found: Attributes) -> Attributes:
    """Attributes as they are now (callbacks may have set some), with what the fit has changed."""
    kept = {
        name: value
        for name, value in now.items()
        if name != "early_" and (name in found or name not in before)
    }
    changed = {
        name: value
        for name, value in without_draft(found).items()
        if name == "early_" or name not in before or value is not before[name]
    }
    return {**kept, **changed}
