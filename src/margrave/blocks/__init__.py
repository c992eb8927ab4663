"""Blocks: what one shard of the data holds and can do, wherever an engine has put it.

    dual.py      problems that are solved on these rows alone
    kernel.py    a share of problems on all rows: dual variables, and scores from everybody's
    gradient.py  a share of the gradient of a linear machine, and stochastic steps

A block keeps what is large (its rows, and kernel values or numbers per row) and answers with what
is small (numbers per row of its own, or per feature). Engines call its methods by name, with arrays
and numbers.
"""

from margrave.blocks.dual import DualBlock, Local, precision_for
from margrave.blocks.gradient import GradientBlock
from margrave.blocks.kernel import Candidates, Fresh, KernelBlock, Share

__all__ = [
    "Candidates",
    "DualBlock",
    "Fresh",
    "GradientBlock",
    "KernelBlock",
    "Local",
    "Share",
    "precision_for",
]
