"""Workers of a Dask cluster: which are alive, which are lost, and calls of their sites.

Every worker that is needed gets one actor, which is a `Site`: it holds blocks and calls them in a
thread of its own. The scheduler only places the actors; calls go to the workers directly, whatever
the client does otherwise, and so do letters and rows from one worker to another.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import uuid
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import suppress
from types import NoneType
from typing import Any

from margrave.engines.base import ShardLost
from margrave.engines.remote import (
    CAME_BACK,
    Assembly,
    Frames,
    Kept,
    Letter,
    Parcel,
    Site,
    needed,
    pack,
    pack_error,
    unpack,
    unpack_answers,
)
from margrave.extras import install
from margrave.rows import Places

try:
    import distributed
    from distributed.protocol import to_serialize
except ImportError as error:
    raise ImportError(f'the engine "dask" needs: {install("dask")}') from error

__all__ = ["DaskWorkers", "distributed"]

_CHECK = 1.0  # seconds between checks that the workers are alive
_BUSY = 120.0  # seconds for the scheduler to answer: on a crowded machine it may take long
_AGAIN = 0.1  # seconds until it is asked again, where the connection broke
_PATIENCE = 5.0  # seconds to wait for the first worker of a cluster
_NOT_THERE = ("error", "cancelled")  # states of an actor
_UNREACHED = (OSError, KeyError, CancelledError)  # KeyError: another worker at the same address


class DaskWorkers:
    """Workers of the cluster behind a client, by their addresses.

    One that was silent for `timeout` seconds, or could not be reached, is lost: it is not called
    again until the scheduler has heard from it.
    """

    def __init__(self, client: distributed.Client, timeout: float, wait: float) -> None:
        self.client, self.timeout, self.wait = client, timeout, wait
        self.lost: dict[str, float] = {}  # and when the scheduler had last seen them
        self._sites: dict[str, Any] = {}  # futures of the actors
        self._had_some = False  # workers, at some time
        self._opening = threading.Lock()
        self._orders = itertools.count()

    # --- which workers are alive ------------------------------------------------------------

    def scheduler(self, name: str, **args: object) -> Any:
        """Ask the scheduler, again if a connection breaks; it may be busy for a while."""
        end = time.monotonic() + max(self.timeout, _BUSY)
        while True:
            self._check_client()
            asked = self._spawn(getattr(self.client.scheduler, name)(**args))
            try:
                return asked.result(max(0.0, end - time.monotonic()))
            except (OSError, CancelledError) as error:
                asked.cancel()
                if time.monotonic() > end:
                    raise RuntimeError(f"the Dask scheduler does not answer ({error!r})") from error
            time.sleep(_AGAIN)

    def _check_client(self) -> None:
        if self.client.status != "running":
            raise RuntimeError(f"the Dask client is {self.client.status}")

    def live(self) -> dict[str, Any]:
        """The usable workers, with the scheduler's information about them."""
        roll = self._roll()
        for worker, seen in list(self.lost.items()):
            if worker in roll and roll[worker]["last_seen"] > seen:
                del self.lost[worker]
                if site := self._sites.pop(worker, None):  # it may still be at work
                    self._spawn(_end(self.client, worker, site))
        return {
            worker: known
            for worker, known in roll.items()
            if worker not in self.lost and known["status"] == "running"
        }

    def staff(self) -> dict[str, Any]:
        """As `live`, but waits for a worker if there is none."""
        lost = list(self.lost)
        had_some = self._had_some or bool(lost)
        end = time.monotonic() + (self.wait if had_some else min(self.wait, _PATIENCE))
        while not (live := self.live()):
            if time.monotonic() > end:
                if not had_some:
                    raise ValueError("the Dask cluster has no workers")
                whom = f"; lost: {', '.join(lost)}" if lost else ""
                raise RuntimeError(f"no Dask worker is left{whom}")
            time.sleep(0.05)
        self._had_some = True
        return live

    def lose(self, workers: Iterable[str]) -> None:
        """Record that workers are lost, and their sites with them."""
        roll = self._roll()
        for worker in workers:
            self.lost[worker] = roll[worker]["last_seen"] if worker in roll else 0.0

    def _roll(self) -> dict[str, Any]:
        workers: dict[str, Any] = self.scheduler("identity")["workers"]
        return workers

    def _silent(
        self, workers: Iterable[str], seen: dict[str, tuple[float, float]]
    ) -> dict[str, str]:
        """Workers that are gone, with the reason.

        `seen` keeps between calls each worker's last heartbeat by the scheduler's clock, and when
        we first saw it by ours: the two clocks may differ.
        """
        roll, now, gone = self._roll(), time.monotonic(), {}
        for worker in workers:
            if worker not in roll:
                gone[worker] = "it has left the cluster"
            elif seen.setdefault(worker, (0.0, now))[0] != roll[worker]["last_seen"]:
                seen[worker] = (roll[worker]["last_seen"], now)
            elif now - seen[worker][1] > self.timeout:
                gone[worker] = f"no sign of life for {self.timeout:g} s"
        return gone

    # --- calls ------------------------------------------------------------------------------

    def open(self, workers: Collection[str]) -> dict[str, str]:
        """Make sure that the workers have a site; its key, by worker."""
        self._check_client()
        with self._opening:
            for worker in workers:
                if worker not in self._sites or self._sites[worker].status in _NOT_THERE:
                    self._sites[worker] = self.client.submit(
                        _Actor,
                        actor=True,
                        key=f"margrave-{uuid.uuid4().hex}",
                        workers=[worker],
                        allow_other_workers=False,
                        pure=False,
                    )
            sites = {worker: self._sites[worker] for worker in workers}
            new = {worker: site for worker, site in sites.items() if site.status != "finished"}
            self._collect({self._spawn(_ready(site)): worker for worker, site in new.items()})
            return {worker: site.key for worker, site in sites.items()}

    def run(
        self, orders: Mapping[str, tuple[Frames, Frames | None]], sources: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Run orders at sites, each with the locations of its rows; return their values.

        Rows come from the `sources`, which must not be lost either.
        """
        number, keys = next(self._orders), self.open(orders)
        calls = {
            self._send(worker, keys[worker], "run", number, *order): worker
            for worker, order in orders.items()
        }
        answers = self._collect(calls, sources, number)
        try:
            values = unpack_answers([parcel for [parcel] in answers.values()])
        except ShardLost as error:  # a worker that answered has lost another one
            self.lose(worker for worker in error.workers if worker not in answers)
            raise
        return dict(zip(answers, values, strict=True))

    def send(self, links: Sequence[tuple[str, str]], letter: Letter) -> list[Any]:
        """Send a letter to the first of these sites, which passes it on; the answers."""
        number, workers = next(self._orders), [worker for worker, _ in links]
        keys = self.open(workers)
        changed = [worker for worker, key in links if keys[worker] != key]
        if changed:
            raise ShardLost(changed, CAME_BACK)
        call = self._send(*links[0], "pass_on", number, *letter)
        [parcels] = self._collect({call: workers[0]}, workers, number).values()
        try:
            return unpack_answers(parcels)
        except ShardLost as error:  # those below the lost one are still at work
            self.lose(error.workers)
            self._drop(workers, number)
            raise

    def take(self, worker: str, kept: Kept) -> Any:
        """Fetch some of the rows that a worker holds."""
        key = self.open([worker])[worker]
        call = self._send(worker, key, "take", kept.name, kept.places, kept.digest)
        return unpack_answers(self._collect({call: worker})[worker])[0]

    def gather(self, futures: Sequence[distributed.Future], holders: Iterable[str]) -> list[Any]:
        """Fetch results of tasks from the workers that have them."""
        call = self._spawn(self.client._gather(list(futures), direct=True))
        watched, seen = set(holders), dict[str, tuple[float, float]]()
        try:
            while not wait([call], _CHECK).done:
                if gone := self._silent(watched, seen):
                    self.lose(gone)
                    raise ShardLost(list(gone), "; ".join(dict.fromkeys(gone.values())))
        except BaseException:
            call.cancel()
            raise
        found: list[Any] = call.result()
        return found

    def _collect(
        self,
        calls: Mapping[Future[list[Parcel]], str],
        others: Iterable[str] = (),
        number: int | None = None,
    ) -> dict[str, list[Parcel]]:
        """Wait for the answers of workers, as long as they and the others send heartbeats."""
        waiting, answers = dict(calls), {}
        watched = {*calls.values(), *others}
        seen: dict[str, tuple[float, float]] = {}
        try:
            while waiting:
                done, _ = wait(waiting, _CHECK, FIRST_COMPLETED)
                gone = {} if done else self._silent({*waiting.values(), *others}, seen)
                for call in done:
                    worker = waiting.pop(call)
                    try:
                        answers[worker] = call.result()
                    except _UNREACHED as error:
                        gone[worker] = f"it cannot be reached ({type(error).__name__})"
                    else:
                        last = needed(answers[worker])
                        if last is not None:  # later ones are not needed now
                            self._cancel(waiting.values(), number, last)
                if gone:
                    self.lose(gone)
                    raise ShardLost(list(gone), "; ".join(dict.fromkeys(gone.values())))
        except (
            BaseException
        ):  # a loss, or Ctrl-C: no worker may still run when the caller continues
            self._drop(watched, number)
            for call in waiting:
                call.cancel()
            raise
        return answers

    def _cancel(self, workers: Iterable[str], number: int | None, last: int) -> None:
        for worker in workers if number is not None else ():
            if worker in self._sites:
                self._send(worker, self._sites[worker].key, "cancel", number, last)

    def _drop(self, workers: Iterable[str], number: int | None) -> None:
        """Cancel an order at workers that are not lost, and wait until it has ended there."""
        ends = [
            self._send(worker, self._sites[worker].key, "drop", number)
            for worker in (workers if number is not None else ())
            if worker in self._sites and worker not in self.lost
        ]
        wait(ends, self.timeout)
        for end in ends:
            end.cancel()

    def _send(self, worker: str, key: str, method: str, *args: Any) -> Future[Any]:
        return self._spawn(_execute(self.client, worker, key, method, *args))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.client.loop.asyncio_loop)


async def _ready(site: distributed.Future) -> list[Parcel]:
    try:
        await site
    except (RuntimeError, distributed.KilledWorker) as error:  # the worker died meanwhile
        raise OSError(str(error)) from error
    return []


async def _end(client: distributed.Client, worker: str, site: distributed.Future) -> None:
    with suppress(*_UNREACHED):
        await _execute(client, worker, site.key, "end")


async def _execute(
    node: distributed.Client | distributed.Worker, worker: str, key: str, method: str, *args: object
) -> Any:
    """Call a method of an actor from a client or another worker, without the scheduler."""
    reply = await node.rpc(worker).actor_execute(
        actor=key, function=method, args=[_as_message(arg) for arg in args], kwargs={}
    )
    if reply["status"] != "OK":
        raise reply["exception"]
    return reply["result"]


def _as_message(arg: object) -> Any:
    """Send small objects unchanged, which is faster than serialising them."""
    if isinstance(arg, (list, tuple)):
        return [_as_message(part) for part in arg]
    return arg if isinstance(arg, (int, str, bytes, NoneType)) else to_serialize(arg)


class _Actor:
    """The site of a Dask worker; its coroutines run while the site's thread is at work."""

    def __init__(self) -> None:
        self._worker = distributed.get_worker()
        self._site = Site(self._worker.address)
        self._tasks: dict[int, asyncio.Task[Any]] = {}  # by order: what `drop` ends
        self._jobs: dict[int, Future[Parcel]] = {}  # by order: what it waits for
        self._below: dict[int, set[tuple[str, str]]] = {}  # by order: who has not answered
        self._notes: set[asyncio.Task[None]] = set()  # on their way to other workers

    async def run(self, number: int, body: Frames, head: Frames | None) -> list[Parcel]:
        return await self._ended(number, self._run(number, body, head))

    async def pass_on(self, number: int, *letter: Any) -> list[Parcel]:
        return await self._ended(number, self._pass_on(number, Letter(*letter)))

    async def cancel(self, number: int, last: int) -> None:
        self._site.cancel(number, last)
        for link in self._below.get(number, ()):
            note = asyncio.create_task(self._tell(link, "cancel", number, last))
            self._notes.add(note)
            note.add_done_callback(self._notes.discard)

    async def drop(self, number: int) -> None:
        self._site.cancel(number)
        job = self._jobs.get(number)
        if number in self._tasks:
            self._tasks[number].cancel()
        if job is not None:
            await asyncio.wait([asyncio.wrap_future(job)])

    async def end(self) -> None:
        self._site.close()

    async def take(self, name: str, places: Places, digest: str) -> list[Parcel]:
        rows, (*_, now), _ = self._worker.data[name]
        if now != digest:
            raise ValueError(
                "rows of a lost worker were computed again, and are not the same: make the"
                " collection reproducible, or persist it"
            )
        return [(None, pack(await asyncio.to_thread(rows.__getitem__, places))[0])]

    async def _ended(self, number: int, work: Coroutine[Any, Any, list[Parcel]]) -> list[Parcel]:
        """Do something that `drop` can end; its errors are answers."""
        self._tasks[number] = task = asyncio.create_task(work)
        try:
            return await task
        except asyncio.CancelledError:
            return [pack_error(KeyboardInterrupt())]
        except Exception as error:
            return [pack_error(error)]
        finally:
            for known in (self._tasks, self._jobs, self._below):
                known.pop(number, None)

    async def _run(self, number: int, body: Frames, head: Frames | None) -> list[Parcel]:
        arrays = await self._fetch(unpack(head)) if head else []
        return [await self._job(number, self._site.run(number, body, lambda: arrays))]

    async def _pass_on(self, number: int, letter: Letter) -> list[Parcel]:
        if self._site.is_cancelled(number):
            return [pack_error(KeyboardInterrupt())]
        letter, below = self._site.accept(letter)
        self._below[number] = set(below)
        found = [asyncio.create_task(self._forward(link, number, letter)) for link in below]
        found.append(asyncio.create_task(self._open(number, letter)))
        try:
            parcels: list[Parcel] = []
            for answer in asyncio.as_completed(found):
                parcels += await answer
                last = needed(parcels)
                if last is not None:  # later ones are not needed now
                    await self.cancel(number, last)
        finally:
            for task in found:
                task.cancel()
        united = self._site.finish(number, letter, parcels)
        return parcels if united is None else [await self._job(number, united)]

    async def _open(self, number: int, letter: Letter) -> list[Parcel]:
        return [await self._job(number, self._site.open(number, letter))]

    async def _forward(self, link: tuple[str, str], number: int, letter: Letter) -> list[Parcel]:
        try:
            found: list[Parcel] = await _execute(self._worker, *link, "pass_on", number, *letter)
        except _UNREACHED as error:
            what = f"{self._worker.address} cannot reach it ({type(error).__name__})"
            return [pack_error(ShardLost([link[0]], what))]
        finally:
            self._below.get(number, set()).discard(link)
        return found

    async def _job(self, number: int, job: Future[Parcel]) -> Parcel:
        self._jobs[number] = job
        return await asyncio.wrap_future(job)

    async def _tell(self, link: tuple[str, str], method: str, *args: Any) -> None:
        with suppress(*_UNREACHED):
            await _execute(self._worker, *link, method, *args)

    async def _fetch(self, wanted: Sequence[Assembly]) -> list[Any]:
        arrays = []
        for rows in wanted:
            found = await asyncio.gather(*map(self._find, rows.wanted))
            arrays.append(await asyncio.to_thread(rows.put, found))
        return arrays

    async def _find(self, kept: Kept) -> Any:
        worker, key = kept.worker
        try:
            if worker == self._worker.address:
                found = await self.take(kept.name, kept.places, kept.digest)
            else:
                wanted = kept.name, kept.places, kept.digest
                found = await _execute(self._worker, worker, key, "take", *wanted)
        except _UNREACHED as error:
            what = f"{self._worker.address} could not get rows from it ({type(error).__name__})"
            raise ShardLost([worker], what) from error
        return unpack_answers(found)[0]
