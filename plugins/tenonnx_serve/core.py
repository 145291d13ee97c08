"""What both protocols ask: find a model, run a request on it, within the limits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tenonnx_serve.batching import Outcome, Queue
from tenonnx_serve.errors import ServeError, answer_to
from tenonnx_serve.model import Model
from tenonnx_serve.repository import Repository
from tenonnx_serve.requests import Array, Request
from tenonnx_serve.settings import Settings
from tenonnx_serve.shared_memory import Regions
from tenonnx_serve.statistics import Spent
from tenonnx_serve.threads import Threads

log = logging.getLogger("tenonnx.serve")

T = TypeVar("T")

LARGE = 1 << 18
"""Bytes of a request, or of an answer, from which on a thread decodes or encodes it."""

Observer = Callable[[Model, Spent | None, int], None]
"""Told of every request that ended: the model, where its time went (``None`` if it failed), and
the nanoseconds that it took in all."""


class Control(Protocol):
    """Loads and unloads models as clients ask, and says what all processes have counted."""

    async def load(self, name: str) -> None:
        """Loads a model, or loads it again as it lies there now."""

    async def unload(self, name: str) -> None:
        """Unloads a model."""

    async def statistics(self) -> list[dict[str, Any]]:
        """Returns what became of the requests to each version that is loaded."""


class Watch(Protocol):
    """Cancels a task when its client goes away."""

    def end(self) -> None:
        """Stops watching."""


class Core:
    """A server's models and the threads that they run in; made in the event loop's thread.

    Attributes:
        settings: What the server was told.
        repository: The models.
        threads: Where they run.
        regions: Shared memory that clients have registered.
        draining: Set once the server takes no new requests.
        observers: Called after every request.
        control: By which clients load and unload models and ask what was counted: the repository,
            unless there are other processes.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.threads = Threads(settings.runs, "tenonnx-run")
        self.repository = Repository(settings, self._queue)
        self.regions = Regions(settings.regions)
        self.draining = False
        self.observers: list[Observer] = []
        self.control: Control = self.repository

    def _queue(self, model: Model) -> Queue:
        policy = model.config.dynamic_batching.default_queue_policy
        most = policy.max_queue_size or self.settings.limits.waiting
        return Queue(model, self.threads, most)

    @property
    def ready(self) -> bool:
        """Whether it takes requests: all models that were to be loaded are."""
        return self.repository.ready and not self.draining

    async def infer(
        self,
        queue: Queue,
        size: int,
        decode: Callable[[], Request],
        encode: Callable[[Request, list[Array]], T],
        watch: Callable[[], Watch] | None = None,
    ) -> T:
        """Returns the answer to a request.

        If the caller is cancelled, the run is stopped.

        Args:
            queue: The model's, which the repository finds.
            size: Bytes of the request: large ones are decoded in a thread.
            decode: Makes the request.
            encode: Makes the answer of the outputs.
            watch: Begins to look whether the client is still there.

        Raises:
            ServeError: There is too much to do, or it takes too long, or the model fails.
        """
        began, model, spent = time.perf_counter_ns(), queue.model, None
        try:
            request = decode() if size < LARGE else await self.threads.submit(decode)
            decoded = time.perf_counter_ns()
            seconds = min(self.settings.limits.seconds, request.timeout)
            outcome = queue.at_once(request)
            if outcome is None:
                outcome = await self._run(queue, request, seconds, watch)
            outputs, spent = outcome
            ran = time.perf_counter_ns()
            large = sum(array.nbytes for array in outputs) >= LARGE
            answer = (
                await self.threads.submit(lambda: encode(request, outputs))
                if large
                else encode(request, outputs)
            )
            ended = time.perf_counter_ns()
            spent.decoded, spent.encoded = decoded - began, ended - ran
            model.statistics.succeeded(spent, ended - began)
            return answer
        except asyncio.CancelledError:
            model.statistics.cancelled += 1
            raise
        except Exception as error:
            spent = None
            model.statistics.fail.add(time.perf_counter_ns() - began)
            raise told(error) from error
        finally:
            for observe in self.observers:
                observe(model, spent, time.perf_counter_ns() - began)

    async def _run(
        self,
        queue: Queue,
        request: Request,
        seconds: float,
        watch: Callable[[], Watch] | None,
    ) -> Outcome:
        watching = watch() if watch is not None else None
        try:
            return await queue.run(request, seconds)
        finally:
            if watching is not None:
                watching.end()

    async def close(self) -> None:
        """Ends the threads, once what runs has ended."""
        await asyncio.to_thread(self.threads.stop)
        await self.repository.close()
        self.regions.close()


def told(error: BaseException) -> ServeError:
    """Returns what a client is told of an exception; the log has what it is not told."""
    answer = answer_to(error)
    if answer.status >= 500 and not isinstance(error, ServeError):
        log.error("%s: %s", type(error).__name__, error, exc_info=error)
    return answer
