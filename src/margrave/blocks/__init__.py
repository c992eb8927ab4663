"""Blocks: what one shard of the data holds and can do, wherever an engine has put it.

    dual.py        problems that are solved on these rows alone
    kernel.py      these rows' part of problems on all rows, in three modules:
      point.py       dual variables, scores from the variables of all blocks, gap terms
      directions.py  the block's own descent direction, and steps along the sum of all of them
      members.py     a working set with members from all blocks
    card.py        parts and blocks that a graphics card solves side by side
    active.py      which rows are active, and a copy of them for moving blocks
    gradient.py    these rows' part of a linear model's gradient, and stochastic steps
    augmented.py   sums for EM and Gibbs sampling; augmented_joint.py  for several classes
    hull.py        weights in a reduced convex hull: extremes, projections
    corners.py     extreme points of two hulls, for Frank-Wolfe steps
    saddle.py      multiplicative steps of the weights, for Saddle-SVC
    passes.py      passes over the rows of a linear model

A block keeps what is large (its rows, and kernel values or numbers per row) and returns what is
small (numbers for some rows, or per feature). Engines call its methods by name; arguments are
arrays and numbers.
"""

from margrave.blocks.dual import DualBlock, PartResult, has_zero, zero_result
from margrave.blocks.gradient import GradientBlock
from margrave.blocks.kernel import KernelBlock
from margrave.blocks.members import Candidates, Fresh
from margrave.blocks.point import BlockState, stack

__all__ = [
    "BlockState",
    "Candidates",
    "DualBlock",
    "Fresh",
    "GradientBlock",
    "KernelBlock",
    "PartResult",
    "has_zero",
    "stack",
    "zero_result",
]
