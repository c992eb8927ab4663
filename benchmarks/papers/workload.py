"""How much work every one of several workers has: counted, and as seconds of the critical path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.scaling import Simulated
from margrave.engines.base import Arguments, build, deal_out, size_of
from margrave.engines.serial import SerialShards
from margrave.kernels import Kernel
from margrave.models import Expansion

# of a method's name and what it has returned; None: the method is not counted
Work = Callable[[str, Any], float | None]


class Tally:
    """An engine of workers that all run here in turn, and what each call of all cost each of them.

    Where `work` tells all that a block has done so far, `is_sum` is true.
    """

    is_remote = True

    def __init__(self, n_workers: int, work: Work, is_sum: bool = False) -> None:
        self.n_workers, self.work, self.is_sum = n_workers, work, is_sum
        self.calls: list[tuple[list[int], np.ndarray]] = []  # sizes of the shards, and their work
        self.shards: list[TalliedShards] = []

    def share(self, at_work: int, threads: int, memory: int) -> tuple[int, int]:
        """One core, and as much memory as here."""
        return 1, memory // -(-at_work // self.n_workers)

    def scatter(self, block_type: Callable[..., Any], pieces: Sequence[Any]) -> TalliedShards:
        """Build one block per piece."""
        sizes = [1 + size_of(piece) for piece in pieces]
        self.shards.append(
            TalliedShards([build(block_type, piece) for piece in pieces], sizes, self)
        )
        return self.shards[-1]

    def all(self) -> float:
        """The work of all workers together."""
        return float(sum(work.sum() for _, work in self.calls))

    def busiest(self, workers: int) -> float:
        """The sum over the calls of what so many workers must wait for: the busiest one's work."""
        return float(
            sum(
                max(work[queue].sum() for queue in deal_out(sizes, workers))
                for sizes, work in self.calls
            )
        )

    def share_of_busiest(self) -> float:
        """The largest share of the rows, by their bytes, that one worker has."""
        sizes = self.shards[0].sizes
        queues = deal_out(sizes, self.n_workers)
        return max(sum(sizes[k] for k in queue) for queue in queues) / sum(sizes)

    def exchanged(self) -> int:
        """Bytes between the driver and the workers."""
        return sum(shards.exchanged for shards in self.shards)


class TalliedShards(SerialShards):
    """Blocks in a list, with what they have done."""

    def __init__(self, blocks: list[Any], sizes: list[int], tally: Tally) -> None:
        super().__init__(blocks)
        self.sizes, self._tally = sizes, tally
        self._before = np.zeros(len(blocks))

    def _run(self, method: str, calls: Sequence[tuple[int, Arguments]]) -> list[Any]:
        results = super()._run(method, calls)
        told = [self._tally.work(method, result) for result in results]
        if len(calls) == len(self) and None not in told:
            work = np.array(told, dtype=np.float64)
            if self._tally.is_sum:
                work, self._before = work - self._before, work
            self._tally.calls.append((self.sizes, work))
        return results


def critical_seconds(model: Any, X: Any, y: Any, workers: int) -> tuple[float, Any]:
    """Seconds of the critical path of a fit on simulated workers of one core, and the model."""
    engine = Simulated(workers)
    fitted = model.set_params(engine=engine, n_jobs=1).fit(X, y)
    engine.path.flush()
    return float(sum(engine.path.critical.values())), fitted


@contextmanager
def counted_predictions() -> Iterator[SimpleNamespace]:
    """Count the kernel values of predictions: `values` of what is yielded."""
    counter = SimpleNamespace(values=0)
    scores, values = Expansion.scores, Kernel.values

    def counted_scores(self: Expansion, X: Any, *args: Any, **options: Any) -> Any:
        counter.values += X.shape[0] * int(np.count_nonzero(self.coef.any(axis=1)))
        return scores(self, X, *args, **options)

    def counted_values(self: Kernel, X: Any, Z: Any) -> Any:
        counter.values += X.shape[0] * Z.shape[0]
        return values(self, X, Z)

    with (
        patch.object(Expansion, "scores", counted_scores),
        patch.object(Kernel, "values", counted_values),
    ):
        yield counter
