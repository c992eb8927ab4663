"""What a search over settings lends to the fits that it makes (see `margrave.tuning`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from margrave.problem import Floats
from margrave.progress import Progress
from margrave.solvers import Solution


class Lender(Protocol):
    """Kernel values and starting points from other fits on the same rows.

    A `rough` fit needs no certificate.
    """

    rough: bool

    def watch(self, progress: Progress) -> None:
        """Take note of how the fit can be stopped."""
        ...

    def lend(self, problems: Sequence[Any], rows: Any) -> tuple[Sequence[Any], list[Floats] | None]:
        """Return the same problems on data whose kernel values are kept, and where to start.

        `rows` are those of the fit behind the rows of the problems' data.
        """
        ...

    def keep(self, solutions: Sequence[Solution]) -> None:
        """Take note of what the fit has found."""
        ...

    def sums(self, X: Any, support: Any, coef: Floats) -> Floats | None:
        """Return sum_j coef_j k(x, row support_j) for every x, None for rows X unknown to it.

        One column per column of `coef`.
        """
        ...
