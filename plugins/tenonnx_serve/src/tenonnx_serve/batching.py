"""The queue of a model's requests; it joins requests of one signature into one run.

Requests collect while a run goes on. When it ends, the oldest one and others of its signature run
together. So a busy model has large batches, and an idle one answers at once. ``wait`` makes a
request wait for others even then. A request that fails or is cancelled does not affect the others.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from tenonnx_serve import batched_run
from tenonnx_serve.errors import BadRequest, Busy, TimedOut
from tenonnx_serve.inline_runs import InlineRuns
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Array, Request
from tenonnx_serve.statistics import Spent
from tenonnx_serve.threads import Stop, Threads

Outcome = tuple[list[Array], Spent]


class Waiting:
    """A request that waits or runs.

    Attributes:
        rows: How many it has.
        future: Its result.
        since: When it came.
        batch: The batch that it runs in; ``None`` before.
    """

    __slots__ = ("batch", "future", "request", "rows", "since", "stop")

    def __init__(self, request: Request, rows: int, stop: Stop) -> None:
        self.request = request
        self.rows = rows
        self.stop = stop
        self.since = time.perf_counter_ns()
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.batch: Batch | None = None


class Batch:
    """Requests that run together; the run stops once nobody waits for it."""

    __slots__ = ("left", "members", "stop")

    def __init__(self, members: Sequence[Waiting]) -> None:
        self.members = members
        self.left = len(members)
        # The time limit of one request must not stop a run that others wait for.
        self.stop = members[0].stop if len(members) == 1 else Stop(float("inf"))
        for member in members:
            member.batch = self

    def leave(self, reason: str) -> None:
        """Count a request that no longer waits."""
        self.left -= 1
        if not self.left:
            self.stop.reason = reason


class Group:
    """Requests of one signature that wait.

    Attributes:
        due: Whether the oldest of them has waited its full time.
    """

    __slots__ = ("due", "members")

    def __init__(self) -> None:
        self.members: deque[Waiting] = deque()
        self.due = False

    def ripe(self, largest: int) -> bool:
        """Return whether a run of this signature may start."""
        return self.due or sum(member.rows for member in self.members) >= largest

    def take(self, largest: int) -> list[Waiting]:
        """Remove and return the oldest ones, as many as a run may have; at least one."""
        taken, rows = [self.members.popleft()], 0
        rows = taken[0].rows
        while self.members and rows + self.members[0].rows <= largest:
            taken.append(self.members.popleft())
            rows += taken[-1].rows
        return taken


class Queue:
    """The requests to one version of a model. Its methods are called in the event loop's thread.

    Args:
        model: Runs them.
        threads: The threads of the runs.
        most: How many requests may wait or run.

    Attributes:
        encoder: Makes embeddings of texts, once somebody has asked for some.
    """

    def __init__(self, model: Model, threads: Threads, most: int) -> None:
        self.model = model
        self.batching = model.batching
        self.waiting = 0
        self.encoder: Any = None
        self._threads = threads
        self._most = most
        self._running = 0
        self._joins = model.batching.largest > 1
        self._groups: dict[Any, Group] = {}
        self._inline_runs = InlineRuns()

    @property
    def has_short_runs(self) -> bool:
        """Whether runs of any signature are known to be short."""
        return self._inline_runs.has_short_runs

    def run_inline(self, request: Request) -> Outcome | None:
        """Return the result of a request that is known to be short; ``None`` for others.

        Raises:
            BadRequest: It has more rows than the model takes, or none.
        """
        if self._joins:
            return None
        return self._inline_runs.run(self.model, request, self._rows(request))

    def _rows(self, request: Request) -> int:
        most = self.model.most_rows
        if not (self._joins or most):
            return 1
        rows = batched_run.rows_of(request)
        if most and rows > most:
            raise BadRequest(
                f"a request has {rows} rows; model '{self.model.name}' takes at most {most}"
            )
        return rows

    async def run(self, request: Request, seconds: float) -> Outcome:
        """Return a request's outputs, and the times of its stages.

        If the caller is cancelled and nobody else waits for the run, the run stops.

        Raises:
            Busy: Too many wait.
            TimedOut: It takes longer than ``seconds``.
            BadRequest: It has more rows than the model takes, or none.
        """
        if self.waiting >= self._most:
            raise Busy(
                f"model '{self.model.name}' has {self.waiting} requests waiting; try again later"
            )
        waiting = Waiting(request, self._rows(request), Stop(seconds))
        self.waiting += 1
        timer = asyncio.get_running_loop().call_later(seconds, self._expire, waiting)
        try:
            self._add(waiting) if self._joins else self._start([waiting])
            return await waiting.future
        except asyncio.CancelledError:
            self._give_up(waiting, "the client went away")
            raise
        finally:
            self.waiting -= 1
            timer.cancel()

    def _expire(self, waiting: Waiting) -> None:
        if not waiting.future.done():
            reason = f"the request took longer than {waiting.stop.seconds:g} s"
            waiting.future.set_exception(TimedOut(reason))
            self._give_up(waiting, reason)

    def _give_up(self, waiting: Waiting, reason: str) -> None:
        if waiting.batch is not None:
            waiting.batch.leave(reason)

    def _add(self, waiting: Waiting) -> None:
        loop, key = asyncio.get_running_loop(), batched_run.signature(waiting.request)
        if (group := self._groups.get(key)) is None:
            group = self._groups[key] = Group()
            # Even without a wait: requests that this turn of the loop reads are joined.
            loop.call_later(self.batching.wait, self._due, group)
        group.members.append(waiting)
        if group.ripe(self.batching.largest):
            self._flush()

    def _due(self, group: Group) -> None:
        group.due = True
        self._flush()

    def _flush(self) -> None:
        """Start the runs that may start, the oldest first."""
        for key, group in list(self._groups.items()):
            while self._running < self.model.at_once and group.ripe(self.batching.largest):
                # Those whose clients have gone, or whose time is over, are dropped here.
                members = [
                    one for one in group.take(self.batching.largest) if not one.future.done()
                ]
                if members:
                    self._running += 1
                    self._start(members)
                if not group.members:
                    del self._groups[key]
                    break

    def _start(self, members: list[Waiting]) -> None:
        batch, model = Batch(members), self.model
        requests = [member.request for member in members]
        rows = [member.rows for member in members]
        future = self._threads.submit(lambda: batched_run.run(model, requests, rows, batch.stop))
        future.add_done_callback(lambda done: self._ended(batch, done))

    def _ended(self, batch: Batch, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        found = [error] * len(batch.members) if error else done.result()
        for member, outcome in zip(batch.members, found, strict=True):
            if member.future.done():
                continue
            if isinstance(outcome, BaseException):
                member.future.set_exception(outcome)
            else:
                outputs, run = outcome
                spent = Spent(run.began - member.since, member.rows, run)
                member.future.set_result((outputs, spent))
        self._count(found)
        if self._joins:
            self._running -= 1
            self._flush()
        elif error is None and not isinstance(found[0], BaseException):
            self._inline_runs.note(batch.members[0].request, found[0][1])

    def _count(self, found: Sequence[Any]) -> None:
        now = time.perf_counter_ns()
        # By identity: requests that were joined share one run, which counts once.
        runs = {id(one[1]): one[1] for one in found if not isinstance(one, BaseException)}
        for run in runs.values():
            self.model.statistics.ran(run, now)
