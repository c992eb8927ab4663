"""The block of problems that are solved on all rows together, for all of their strategies."""

from __future__ import annotations

from margrave.blocks.directions import Directions
from margrave.blocks.members import Members


class KernelBlock(Directions, Members):
    """Some rows, and their part of problems on all rows; see `Point` for the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave.kernels import Kernel
    >>> from margrave.losses import Loss
    >>> from margrave.problem import Data, Problem
    >>> data = Data(np.array([[-1.0], [1.0]]), Kernel("linear"), np.array([0, 2]))
    >>> problem = Problem(data, None, np.array([-1.0, 1.0]), np.ones(2), Loss("hinge"), None)
    >>> block = KernelBlock(0, [problem], None, np.arange(2), None, 0.0, 1 << 20, 1)
    >>> points, change = block.propose(0, 1e-9, False, 0.0, 2.0, 1e18)
    >>> (points.T @ change).round(6).tolist()  # the weight of the only feature
    [1.0]
    """
