"""Long work in a thread asks now and then whether to stop: counted in questions, not in seconds."""

import time

import numpy as np
import pytest

from margrave import _core
from margrave.blocks import KernelBlock
from tests import build


class Asked:
    """Says at one of the questions that it is time to stop, and counts them."""

    def __init__(self, last=None):
        self.count, self.last = 0, last

    def __call__(self):
        time.sleep(0.03)  # a question every 20 ms at most: now every check asks
        self.count += 1
        return self.count == self.last


@pytest.mark.parametrize(("intercept", "C"), [(None, 3.0), ("free", 30.0)])
def test_a_long_round_asks_whether_to_stop(intercept, C):
    """One round, in which the working set is the whole problem."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 5))
    y = np.where(rng.random(1500) < 0.5, 1.0, -1.0)
    problem = build.problem(X, y, C, ("hinge", {}), ("rbf", {"gamma": 0.1}), intercept)

    def core(asked):
        rows = problem.data.kernel_rows("float64", 1 << 26, 1 << 22, 1, problem.offset)
        found = problem.core(rows, None, 1500, 1e-9)
        found.stop_if(asked)
        return found

    def one_round(of):
        return of.advance(1e-12, 1, 1e9, 1e9)[0]

    whole, stopped = core(asked := Asked()), core(last := Asked())
    assert one_round(whole) == "running"
    assert asked.count >= whole.work[1] // 1024 >= 3
    last.last = asked.count - 1
    assert one_round(stopped) == "stopped" and stopped.interrupted
    assert last.count == last.last and stopped.work[1] < whole.work[1]
    assert not stopped.beta.any()  # as before the round
    assert one_round(stopped) == "running"
    np.testing.assert_array_equal(stopped.beta, whole.beta)


def test_long_sums_ask_whether_to_stop():
    X = np.random.default_rng(0).standard_normal((20_000, 8))
    kernel, rows = build.core_kernel(("rbf", {"gamma": 1.0})), build.rows(X)
    asked = Asked(last=2)
    with pytest.raises(KeyboardInterrupt):
        _core.scores(kernel, rows, rows, np.ones((len(X), 1)), stop_if=asked)
    assert 2 <= asked.count <= 4  # of hundreds
    found, _ = _core.scores(kernel, rows, build.rows(X[:5]), np.ones((5, 1)), stop_if=lambda: False)
    np.testing.assert_array_equal(
        found, _core.scores(kernel, rows, build.rows(X[:5]), np.ones((5, 1)))[0]
    )


def test_a_block_that_is_asked_to_stop_does():
    """Its sums over the variables of all blocks, and its rounds."""
    X = np.random.default_rng(0).standard_normal((50, 2))
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    problem = build.problem(X, y, 1.0, ("hinge", {}), ("rbf", {"gamma": 1.0}), None)
    common = {"states": None, "across": None, "floor": 1e-9, "memory": 1 << 24, "threads": 1}
    block = KernelBlock(number=0, problems=[problem], numbers=np.arange(50), **common)
    block.cancel()
    with pytest.raises(KeyboardInterrupt):
        block.rebuild(0, X, np.ones(50), "float64")
    with pytest.raises(KeyboardInterrupt):
        block.propose(0, 1e-3, True, 0.0, 100.0, time.time() + 100.0)
