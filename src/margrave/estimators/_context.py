"""What the fits of a search share (see `margrave.tuning`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from margrave.estimators._input import Rows
from margrave.problem import BaseProblem, Floats
from margrave.progress import Progress
from margrave.rows import AnyRows
from margrave.solvers import Solution


class FitContext(Protocol):
    """Kernel values and warm starts from other fits on the same rows.

    A `rough` fit needs no certificate.
    """

    rough: bool

    def watch(self, progress: Progress) -> None:
        """Called with the progress of the fit, by which it can be stopped."""
        ...

    def share(
        self, problems: Sequence[BaseProblem], rows: Rows
    ) -> tuple[Sequence[BaseProblem], list[Floats] | None]:
        """Return the same problems on data with cached kernel values, and their starts.

        `rows` are the rows of X behind the rows of the problems' data.
        """
        ...

    def keep(self, solutions: Sequence[Solution]) -> None:
        """Store the solutions as starts of later fits."""
        ...

    def sums(self, X: AnyRows, support: Rows, coef: Floats) -> Floats | None:
        """Return sum_j coef_j k(x, row support_j) for every row x of X, or None if not cached.

        One column per column of `coef`.
        """
        ...
