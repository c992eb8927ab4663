"""Types of the compiled core."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KERNELS: dict[str, tuple[str, ...]]
LOSSES: dict[str, tuple[str, ...]]

class Rows:
    @staticmethod
    def dense(array: NDArray[Any]) -> Rows: ...
    @staticmethod
    def csr(
        data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[np.int64], n_columns: int
    ) -> Rows: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def n_columns(self) -> int: ...

class Kernel:
    def __init__(
        self,
        name: str,
        gamma: float = 1.0,
        degree: int = 3,
        coef0: float = 0.0,
        offset: float = 0.0,
    ) -> None: ...
    @property
    def name(self) -> str: ...

class Loss:
    def __init__(
        self,
        name: str,
        epsilon: float = 0.0,
        theta: float = 0.0,
        upsilon: float = 0.0,
        floor: float = 0.0,
    ) -> None: ...
    @property
    def labels(self) -> bool: ...
    @property
    def smooth(self) -> bool: ...
    @property
    def quadratic(self) -> bool: ...
    def value(self, y: Floats, C: Floats, f: Floats) -> Floats: ...
    def slope(self, y: Floats, C: Floats, f: Floats) -> Floats: ...
    def second_derivative(self, y: Floats, C: Floats, f: Floats) -> Floats: ...
    def conjugate(self, y: Floats, C: Floats, beta: Floats) -> Floats: ...
    def right(self, y: Floats, C: Floats, beta: Floats) -> Floats: ...
    def left(self, y: Floats, C: Floats, beta: Floats) -> Floats: ...
    def box(self, y: Floats, C: Floats) -> tuple[Floats, Floats]: ...
    def step(self, y: Floats, C: Floats, beta: Floats, f: Floats, k: Floats) -> Floats: ...
    def gap(self, y: Floats, C: Floats, beta: Floats, f: Floats) -> Floats: ...

class KernelRows:
    def __init__(
        self,
        rows: Rows,
        kernel: Kernel | None,
        fetch: Callable[[NDArray[np.int64], NDArray[np.int64]], Floats] | None,
        offset: float,
        starts: list[int],
        dtype: str,
        memory: int,
        buffer: int,
        threads: int,
        cache: bool = True,
        isa: str = "",
    ) -> None: ...
    def multiply(
        self,
        rows: NDArray[np.int64],
        coef: Floats,
        points: NDArray[np.int64],
        exact: bool,
        time_left: float,
    ) -> tuple[Floats | None, bool]: ...
    def block_sums(self, rows: NDArray[np.int64], coef: Floats, block: int) -> Floats: ...
    def diagonal(self, points: NDArray[np.int64]) -> Floats: ...
    def multiply_carefully(
        self,
        rows: NDArray[np.int64],
        coef: Floats,
        points: NDArray[np.int64],
        time_left: float,
    ) -> tuple[Floats | None, Floats | None]: ...
    def rounding(self, points: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]: ...
    @property
    def cached_bytes(self) -> int: ...

class ForeignRows:
    def __init__(
        self, rows: Rows, kernel: Kernel, dtype: str, memory: int, threads: int
    ) -> None: ...
    def add(
        self,
        points: Rows,
        which: NDArray[np.int64],
        numbers: NDArray[np.int64],
        change: Floats,
    ) -> Floats: ...
    @property
    def kernel_values(self) -> int: ...

class FixedPart:
    def __init__(
        self, shift: Floats, scores: Floats, dual: float, gap: float, bound: float
    ) -> None: ...

class DualProblem:
    def __init__(
        self,
        blocks: list[int],
        loss: Loss,
        y: Floats,
        C: Floats,
        *,
        start: Floats | None = None,
        has_free_intercept: bool = False,
        sum: float = 0.0,
        scale: float = 0.0,
        fixed: FixedPart | None = None,
    ) -> None: ...

class _Descent:
    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[dict[str, Any]]]: ...
    def certify(self, time_left: float) -> dict[str, Any] | None: ...
    def figures(self) -> dict[str, Any]: ...
    @property
    def work(self) -> tuple[int, int, int]: ...
    @property
    def interrupted(self) -> bool: ...
    @property
    def beta(self) -> Floats: ...
    @property
    def scores(self) -> Floats: ...

class WorkingSet(_Descent):
    def __init__(self, kernel_rows: KernelRows, problem: DualProblem, size: int) -> None: ...
    def kkt_violations(self) -> Floats: ...
    def fixed_part(self, active: NDArray[np.int64], time_left: float) -> FixedPart | None: ...
    def adopt(
        self, active: NDArray[np.int64], beta: Floats, scores: Floats, time_left: float
    ) -> bool: ...

class StallRule:
    state: list[float]
    def __init__(self, window: int, is_single: bool, is_hull: bool) -> None: ...
    def check(self, rounds: int, primal: float, dual: float, gap: float) -> bool: ...

class CoordinateDescent(_Descent):
    def __init__(self, kernel_rows: KernelRows, problem: DualProblem, seed: int) -> None: ...

class Stopped(Exception): ...

class Team:
    def __init__(self, threads: int, isa: str = "") -> None: ...
    def limit(self, seconds: float) -> None: ...
    @property
    def interrupted(self) -> bool: ...
    @property
    def threads(self) -> int: ...

class LinearRows:
    def __init__(self, rows: Rows, firsts: list[int], lasts: list[int], team: Team) -> None: ...
    def multiply(self, W: Floats, out: Floats) -> None: ...
    def transposed(self, B: Floats, out: Floats) -> None: ...
    def gram(self, D: Floats, matrix: Floats, border: Floats, single: bool = False) -> None: ...
    def diagonal(self, D: Floats, out: Floats) -> None: ...
    def audit(
        self, w: Floats, b: Floats, compensated: bool
    ) -> tuple[Floats, Floats, Floats, Floats, float]: ...
    def squares(self) -> Floats: ...
    @property
    def longest(self) -> float: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def n_columns(self) -> int: ...

class RowTerms:
    def __init__(self, loss: Loss, y: Floats, C: Floats, team: Team) -> None: ...
    def respond(self, centre: Floats | None, delta: float, f: Floats) -> tuple[Floats, Floats]: ...
    def line_search(
        self,
        centre: Floats | None,
        delta: float,
        f: Floats,
        df: Floats,
        slope: float,
        square: float,
    ) -> float: ...
    def gap(self, beta: Floats, f: Floats, b: float) -> float: ...
    def value(self, f: Floats, b: float) -> float: ...
    def conjugate(self, beta: Floats) -> float: ...
    def value_error(self, f: Floats, b: float, error: float) -> float: ...
    def total(self, beta: Floats) -> tuple[float, float]: ...
    def best_intercept(self, f: Floats, start: float) -> float: ...
    def audit(
        self, beta: Floats, f: Floats, error: Floats, b: float, closely: bool
    ) -> dict[str, float]: ...
    def absorb(
        self, beta: Floats, f: Floats, error: Floats, b: float, change: float
    ) -> tuple[int, float]: ...
    def feasible(self, beta: Floats, balanced: bool) -> Floats: ...

class LinearDescent(_Descent):
    def __init__(
        self,
        rows: LinearRows,
        terms: RowTerms,
        intercept: str,
        start: Floats | None,
        seed: int,
        patience: float,
    ) -> None: ...
    @property
    def weights(self) -> Floats: ...

class Joint(_Descent):
    def __init__(
        self,
        kernel_rows: KernelRows,
        loss: str,
        y: NDArray[np.int64],
        n_classes: int,
        C: Floats,
        start: Floats | None,
        bias: Floats,
        size: int,
    ) -> None: ...
    def set_bias(self, bias: Floats) -> None: ...

class BadText(ValueError): ...

def read_libsvm(
    text: NDArray[np.uint8],
    heads: int,
    zero_based: bool | None,
    most: int,
    dtype: str,
    threads: int,
) -> dict[str, Any]: ...
def libsvm_lines(
    rows: Rows, heads: Floats, first: int, last: int, zero_based: bool, threads: int
) -> bytes: ...
def solve_positive(A: Floats, b: Floats) -> Floats | None: ...
def stochastic_steps(
    rows: LinearRows,
    terms: RowTerms,
    order: NDArray[np.int64],
    eta: float,
    f: Floats,
    slopes: Floats,
    constant: bool,
    start: Floats,
) -> Floats: ...
def isa_levels() -> list[str]: ...
def tile(
    kernel: Kernel, A: Rows, B: Rows, dtype: str = "float64", threads: int = 1, isa: str = ""
) -> NDArray[Any]: ...
def scores(
    kernel: Kernel,
    X: Rows,
    points: Rows,
    coef: Floats,
    dtype: str = "float64",
    threads: int = 1,
    isa: str = "",
    seconds: float = 1e18,
) -> Floats: ...
