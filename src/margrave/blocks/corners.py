"""Shards of two convex hulls: extreme points in a direction, and Frank-Wolfe steps towards them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.blocks.hull import Floats
from margrave.problem import Problem
from margrave.progress import forever
from margrave.rows import Matrix

GRID = 128  # levels that are tried at a time
PLAIN = -1  # a step of both classes towards their corners; 0, 1: a pairwise step of that class

Move = tuple[int, float]  # kind and length of a step
Tip = tuple[float, float, Floats | None]  # score, weight and vector of a row, if there is one
Pairs = list[Floats]  # scores and caps, one array of two columns for each list


class Lists:
    """Scores of rows with caps; rows get their cap as weight, lowest score first, up to a sum.

    The score up to which that goes, the level, is found by the caller (`find_levels`), over all
    blocks: `ends`, then `below` as often as needed, then `between`.
    """

    def __init__(self, lists: list[tuple[Floats, Floats]]) -> None:
        self.lists = []
        for s, cap in lists:
            order = np.argsort(s, kind="stable")
            self.lists.append((s[order], np.concatenate([[0.0], np.cumsum(cap[order])])))

    def ends(self) -> Floats:
        """Lowest and highest score of each list, and the caps of the rows with the lowest."""
        found = np.tile([np.inf, -np.inf, 0.0], (len(self.lists), 1))
        for row, (s, sums) in zip(found, self.lists, strict=True):
            if len(s):
                row[:] = s[0], s[-1], sums[np.searchsorted(s, s[0], side="right")]
        return found

    def below(self, grid: Floats) -> Floats:
        """Sum of caps and number of the rows up to each of some levels, list by list."""
        at = [
            np.searchsorted(s, g, side="right") for (s, _), g in zip(self.lists, grid, strict=True)
        ]
        sums = [sums[ends] for (_, sums), ends in zip(self.lists, at, strict=True)]
        return np.array([sums, at], dtype=np.float64)

    def between(self, low: Floats, high: Floats) -> Pairs:
        """Scores and caps of the rows with low < score <= high."""
        found = []
        for (s, sums), a, b in zip(self.lists, low, high, strict=True):
            first, last = np.searchsorted(s, [a, b], side="right")
            found.append(np.stack([s[first:last], np.diff(sums[first : last + 1])], axis=1))
        return found


class CornerBlock:
    """Some rows of both classes, their weights x, and corners of the hulls in a direction.

    Weights count with the sign of the class: z = sum_i y_i x_i row_i over all blocks. For each
    class there are two lists, sorted by y z'row: all rows, lowest first (weights on the lowest are
    the corner to step towards), and the rows with 0 < x_i < cap_i, highest first (the away corner,
    in the smallest face around x). Without caps a corner is a single row, which `tips` returns at
    once. With caps `aim` starts the search for levels, and `corner` ends it.

    Parameters
    ----------
    X : ndarray or CSR of shape (rows, d)
    y, cap, weight : float64 arrays
    pairwise : bool
        Whether away corners are needed.

    Examples
    --------
    >>> block = CornerBlock(
    ...     X=np.array([[1.0], [3.0], [-1.0]]), y=np.array([1.0, 1.0, -1.0]),
    ...     cap=np.full(3, 2.0), weight=np.array([0.5, 0.5, 1.0]), pairwise=True,
    ... )
    >>> block.point().tolist()  # (1 + 3) / 2 - (-1)
    [3.0]
    >>> tips = block.tips(np.array([3.0]), None, None)
    >>> [(score, weight, row.tolist()) for score, weight, row in tips]
    [(3.0, 0.5, [1.0]), (3.0, 1.0, [1.0]), (-9.0, 0.5, [3.0]), (-3.0, 1.0, [1.0])]
    >>> ends, full = block.aim(np.array([3.0]), None)
    >>> ends[:2].tolist()  # lowest, highest score, and caps, of both classes
    [[3.0, 9.0, 2.0], [3.0, 3.0, 2.0]]
    """

    def __init__(self, X: Matrix, y: Floats, cap: Floats, weight: Floats, pairwise: bool) -> None:
        self.X, self.y, self.cap, self.weight = X, y, cap, weight
        self.pairwise = pairwise
        self.sides = [y > 0, y < 0]
        self.towards, self.away = np.zeros(len(y)), np.zeros(len(y))
        self.proposed_rows: list[int] = []

    # --- vectors: what a subclass for other kernels replaces ----------------------------------

    def _products(self, z: Floats) -> Floats:
        """Products of the rows with a vector."""
        return np.asarray(self.X @ z, dtype=np.float64)

    def _combination(self, beta: Floats, name: str) -> Floats:
        """The vector sum_i beta_i x_i; `name` identifies it from call to call."""
        used = np.flatnonzero(beta)
        return np.asarray(self.X[used].T @ beta[used], dtype=np.float64).ravel()

    # --- calls ------------------------------------------------------------------------------

    def point(self) -> Floats:
        """Return this block's part of z, from its weights."""
        return self._combination(self.y * self.weight, "point")

    def tips(self, z: Floats, move: Move | None, own: list[bool] | None) -> list[Tip]:
        """Apply the last step; return the first row of each list along z, where rows have no caps.

        The step is towards the rows that the last call returned and that were the first among all
        blocks: `own` says which. A row is returned with its score and its weight.
        """
        if move is not None and own is not None:
            self.towards[:], self.away[:] = 0.0, 0.0
            for number, (row, is_first) in enumerate(zip(self.proposed_rows, own, strict=True)):
                if is_first:
                    (self.towards if number < 2 else self.away)[row] = 1.0
        self._follow(z, move)
        lists = [(self.s, np.flatnonzero(side), "towards") for side in self.sides]
        if self.pairwise:
            used = self.weight > 0.0
            lists += [(-self.s, np.flatnonzero(side & used), "away") for side in self.sides]
        self.proposed_rows = []
        tips: list[Tip] = []
        for number, (s, rows, name) in enumerate(lists):
            row = int(rows[np.argmin(s[rows])]) if len(rows) else -1
            self.proposed_rows.append(row)
            if row < 0:
                tips.append((np.inf, 0.0, None))
                continue
            alone = np.zeros(len(self.y))
            alone[row] = self.y[row]
            vector = self._combination(alone, f"{name} {number % 2}")
            tips.append((float(s[row]), float(self.weight[row]), vector))
        return tips

    def aim(self, z: Floats, move: Move | None) -> tuple[Floats, Floats]:
        """Apply the last step; return the ends of the lists along z, and the weight at caps."""
        self._follow(z, move)
        full = self.weight >= self.cap
        self.free = (self.weight > 0.0) & ~full
        lists = [(self.s[side], self.cap[side]) for side in self.sides]
        if self.pairwise:
            free = [side & self.free for side in self.sides]
            lists += [(-self.s[side], self.cap[side]) for side in free]
        self.lists = Lists(lists)
        return self.lists.ends(), np.array([self.cap[side & full].sum() for side in self.sides])

    def _follow(self, z: Floats, move: Move | None) -> None:
        if move is not None:
            kind, step = move
            if kind == PLAIN:
                change = self.towards - self.weight
            else:  # of one class, from corner to corner
                change = np.where(self.sides[kind], self.towards - self.away, 0.0)
            moved = self.weight + step * change
            self.weight = np.clip(moved, 0.0, self.cap)
            # weights that a step has reduced to rounding errors are zero
            self.weight[self.weight <= 1e-15] = 0.0
        self.s = self.y * self._products(z)

    def below(self, grid: Floats) -> Floats:
        """See `Lists`."""
        return self.lists.below(grid)

    def between(self, low: Floats, high: Floats) -> Pairs:
        """See `Lists`."""
        return self.lists.between(low, high)

    def corner(self, level: Floats, share: Floats) -> tuple[list[Floats], Floats]:
        """Return this block's part of the corners, and the largest steps between them.

        First the corners of both classes towards which to step, then their away corners.
        """
        self.towards[:], self.away[:] = 0.0, 0.0
        full = self.weight >= self.cap
        for number, side in enumerate(self.sides):
            ends = level[number], share[number]
            self.towards[side] = self._filled(self.s[side], self.cap[side], *ends)
            if self.pairwise:
                free, ends = side & self.free, (level[number + 2], share[number + 2])
                self.away[free] = self._filled(-self.s[free], self.cap[free], *ends)
                self.away[side & full] = self.cap[side & full]
        corners = [("towards", self.towards)] + [("away", self.away)] * self.pairwise
        vectors = [
            self._combination(np.where(side, self.y * corner, 0.0), f"{name} {number}")
            for name, corner in corners
            for number, side in enumerate(self.sides)
        ]
        return vectors, self._room()

    @staticmethod
    def _filled(s: Floats, cap: Floats, level: float, share: float) -> Floats:
        filled: Floats = np.where(s < level, cap, np.where(s == level, share * cap, 0.0))
        return filled

    def _room(self) -> Floats:
        """The largest feasible step of each class from its away corner to the other."""
        found = np.ones(2)
        for number, side in enumerate(self.sides):
            change = np.where(side, self.towards - self.away, 0.0)
            down, up = change < 0.0, change > 0.0
            ends = [
                self.weight[down] / -change[down],
                (self.cap - self.weight)[up] / change[up],
                np.ones(1),
            ]
            found[number] = np.concatenate(ends).min()
        return found

    def weights(self) -> Floats:
        """Return the weights."""
        return self.weight


class KernelCornerBlock(CornerBlock):
    """All rows of a problem with any kernel. A vector is two arrays: beta, and K beta for all rows.

    Parameters
    ----------
    problem : Problem
    weight : float64 array
    pairwise : bool
    threads, memory : int
    left : function
        Seconds left; ``_core.Stopped`` is raised where there are none.
    """

    def __init__(
        self,
        problem: Problem,
        weight: Floats,
        pairwise: bool,
        threads: int,
        memory: int,
        left: Callable[[], float] = forever,
    ) -> None:
        super().__init__(problem.data.X, problem.y, problem.C, weight, pairwise)
        self.rows = problem.data.kernel_rows("float64", memory, 1 << 25, threads, cache=False)
        self.at, self.left = problem.data_rows, left
        self.last: dict[str, NDArray[np.float64]] = {}

    def _products(self, z: Floats) -> Floats:
        scores: Floats = z[1]
        return scores

    def _combination(self, beta: Floats, name: str) -> Floats:
        """Corners change little from call to call: only the change is multiplied."""
        before = self.last.get(name, np.zeros((2, len(beta))))
        change = beta - before[0]
        used = np.flatnonzero(change)
        if len(used) > np.count_nonzero(beta):
            before, change, used = np.zeros_like(before), beta, np.flatnonzero(beta)
        sums, interrupted = self.rows.multiply(
            self.at[used], np.ascontiguousarray(change[used, None]), self.at, True, self.left()
        )
        if sums is None or interrupted:
            raise KeyboardInterrupt if interrupted else _core.Stopped
        self.last[name] = np.stack([beta, before[1] + sums[:, 0]])
        return self.last[name]
