"""Blocks: what one shard of the data holds and can do, wherever an engine has put it.

    dual.py      problems that are solved on these rows alone
    kernel.py    a share of problems on all rows: dual variables, and scores from everybody's:
    point.py       the variables, the scores and what they are worth
    directions.py  a block's own direction, and a step along everybody's
    members.py     a working set with members from all blocks
    gradient.py  a share of the gradient of a linear machine, and stochastic steps

A block keeps what is large (its rows, and kernel values or numbers per row) and answers with what
is small (numbers per row of its own, or per feature). Engines call its methods by name, with arrays
and numbers.
"""

from margrave.blocks.dual import DualBlock, PartResult
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
    "stack",
]
