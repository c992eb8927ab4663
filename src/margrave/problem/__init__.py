"""The optimization problem that all estimators solve, as data.

    min over beta   1/2 beta'K beta + sum_i h_i(beta_i)        one signed variable per row

`Data` is the rows and the kernel, shared by all problems of one fit. `BaseProblem` is what a solver
may ask of a problem on them. `Problem` has one variable per row: targets, penalties C_i, the loss
and the kind of intercept on some blocks of the rows. `JointProblem` has one variable per row and
class. A `Solution` is what solvers return.

data.py      Data; solution.py  Solution
base.py      BaseProblem; single.py  Problem; joint.py  JointProblem
started.py   StartedProblem: one with a start whose scores are known
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from margrave.problem.base import BaseProblem, Intercept, check_weights
from margrave.problem.data import Data, Floats, RowNumbers
from margrave.problem.joint import JointProblem
from margrave.problem.single import Problem
from margrave.problem.solution import Solution, StopReason
from margrave.problem.started import StartedProblem

if TYPE_CHECKING:
    from typing_extensions import TypeIs

AnyProblem: TypeAlias = "Problem | JointProblem"

__all__ = [
    "AnyProblem",
    "BaseProblem",
    "Data",
    "Floats",
    "Intercept",
    "JointProblem",
    "Problem",
    "RowNumbers",
    "Solution",
    "StartedProblem",
    "StopReason",
    "check_weights",
    "is_joint",
    "is_single",
]


def is_joint(problem: BaseProblem) -> TypeIs[JointProblem]:
    """Whether a problem has a score per row and class."""
    return isinstance(problem, JointProblem)


def is_single(problem: BaseProblem) -> TypeIs[Problem]:
    """Whether a problem has one score per row."""
    return isinstance(problem, Problem)
