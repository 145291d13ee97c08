"""The part that both protocols share: find a model, run a request on it, within the limits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tenonnx_serve import switches
from tenonnx_serve.access import Controls
from tenonnx_serve.batching import Outcome, Queue
from tenonnx_serve.bodies import BodyMemory
from tenonnx_serve.counts import Counts
from tenonnx_serve.errors import ServeError, answer_to
from tenonnx_serve.model import Model
from tenonnx_serve.repository import Repository
from tenonnx_serve.requests import Array, Parameters, Request
from tenonnx_serve.settings import Settings
from tenonnx_serve.shared_memory import Regions
from tenonnx_serve.statistics import Spent
from tenonnx_serve.threads import Threads

if TYPE_CHECKING:
    from tenonnx_serve.openai.generations import Generations
    from tenonnx_serve.openai.language_model import LanguageModel

log = logging.getLogger("tenonnx.serve")

T = TypeVar("T")

# Bytes of a request or an answer from which on a thread decodes or encodes it.
MIN_THREADED_BYTES = 1 << 18

# Called after every request with the model, the times of its stages (`None` if it failed), and its
# whole time in nanoseconds.
Observer = Callable[["Model | LanguageModel", Spent | None, int], None]


class Control(Protocol):
    """The loading and unloading of models for clients, and the sums of all processes' counts."""

    async def load(self, name: str) -> None:
        """Load a model, or load its present files again."""

    async def unload(self, name: str) -> None:
        """Unload a model."""

    async def statistics(self) -> list[dict[str, Any]]:
        """Return the counts of requests of each loaded version."""


class ClientWatch(Protocol):
    """Cancels a task when its client goes away."""

    def end(self) -> None:
        """Stop watching."""


class Core:
    """A server's models and their threads; made in the event loop's thread.

    Attributes:
        settings: The server's settings.
        repository: The models.
        threads: The threads that run models.
        regions: Shared memory that clients have registered.
        room: Memory for the bodies that are being read.
        draining: Set once the server takes no new requests.
        counts: Counts of requests and texts.
        observers: Called after every request.
        controls: Admits requests that load and unload models and change settings.
        control: Loads and unloads models and sums counts: the repository, or the supervisor if
            there are several processes.
        log_settings: Changes the log's settings for clients, and returns them.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.threads = Threads(settings.runs, "tenonnx-run")
        self.repository = Repository(settings, self._queue)
        most = settings.limits.body
        self.regions = Regions(settings.regions, enabled=settings.shared_memory, most=most)
        self.controls = Controls(settings.access)
        self.body_memory = BodyMemory(settings.limits.bodies)
        self.draining = False
        self.counts = Counts()
        self.observers: list[Observer] = []
        self.control: Control = self.repository
        self.log_settings: Callable[[Parameters], Awaitable[Parameters]] = _log_settings

    def _queue(self, model: Model | LanguageModel) -> Queue | Generations:
        if not isinstance(model, Model):
            from tenonnx_serve.openai.generations import Generations  # if there is tenonnx-generate

            limits = self.settings.limits
            texts = self.counts.texts_of(model.name, model.version)
            return Generations(model, self.settings.runs, limits.waiting, self._observe, texts)
        policy = model.config.dynamic_batching.default_queue_policy
        most = policy.max_queue_size or self.settings.limits.waiting
        return Queue(model, self.threads, most)

    def _observe(self, model: Model | LanguageModel, spent: Spent | None, ns: int) -> None:
        for observe in self.observers:
            observe(model, spent, ns)

    @property
    def ready(self) -> bool:
        """Whether the server takes requests: all models to load at the start are loaded."""
        return self.repository.ready and not self.draining

    async def infer(
        self,
        queue: Queue,
        size: int,
        decode: Callable[[], Request],
        encode: Callable[[Request, list[Array]], T],
        watch: Callable[[], ClientWatch] | None = None,
    ) -> T:
        """Return the answer to a request.

        If the caller is cancelled, the run is stopped.

        Args:
            queue: The model's queue, from the repository.
            size: Bytes of the request; a thread decodes large ones.
            decode: Makes the request.
            encode: Makes the answer from the outputs.
            watch: Starts to watch whether the client is connected.

        Raises:
            ServeError: The server is too busy, the request takes too long, or the model fails.
        """
        began, model, spent = time.perf_counter_ns(), queue.model, None
        try:
            # Small requests are decoded here: a handover to a thread takes longer than that.
            request = decode() if size < MIN_THREADED_BYTES else await self.threads.submit(decode)
            decoded = time.perf_counter_ns()
            seconds = min(self.settings.limits.seconds, request.timeout)
            outcome = queue.run_inline(request)
            if outcome is None:
                outcome = await self._run(queue, request, seconds, watch)
            outputs, spent = outcome
            ran = time.perf_counter_ns()
            answer = (
                await self.threads.submit(lambda: encode(request, outputs))
                if _are_large(outputs)
                else encode(request, outputs)
            )
            _succeeded(model, spent, began, decoded, ran)
            return answer
        except asyncio.CancelledError:
            model.statistics.cancelled += 1
            raise
        except ServeError:
            spent = None
            _failed(model, began)
            raise  # not from itself: a cycle would keep the request until a collection
        except Exception as error:
            spent = None
            _failed(model, began)
            raise client_error(error) from error
        finally:
            self._observe(model, spent, time.perf_counter_ns() - began)

    def run_inline(
        self,
        queue: Queue,
        decode: Callable[[], Request],
        encode: Callable[[Request, list[Array]], T],
    ) -> T | None:
        """Return the answer to a small request whose run is known to be short.

        Returns ``None`` and counts nothing for any other request, and for one that fails:
        ``infer`` then does it from its beginning.
        """
        began, model = time.perf_counter_ns(), queue.model
        try:
            request = decode()
            decoded = time.perf_counter_ns()
            outcome = queue.run_inline(request)
            if outcome is None or _are_large(outcome[0]):
                return None
            outputs, spent = outcome
            ran = time.perf_counter_ns()
            answer = encode(request, outputs)
        except Exception:  # ``infer`` runs it again and reports the error
            return None
        ns = _succeeded(model, spent, began, decoded, ran)
        self._observe(model, spent, ns)
        return answer

    async def _run(
        self,
        queue: Queue,
        request: Request,
        seconds: float,
        watch: Callable[[], ClientWatch] | None,
    ) -> Outcome:
        watching = watch() if watch is not None else None
        try:
            return await queue.run(request, seconds)
        finally:
            if watching is not None:
                watching.end()

    async def close(self) -> None:
        """End the threads, once the current runs have ended."""
        await asyncio.to_thread(self.threads.stop)
        await self.repository.close()
        self.regions.close()


async def _log_settings(asked: Parameters) -> Parameters:
    return switches.log(asked)


def _are_large(outputs: list[Array]) -> bool:
    return sum([array.nbytes for array in outputs]) >= MIN_THREADED_BYTES


def _succeeded(model: Model, spent: Spent, began: int, decoded: int, ran: int) -> int:
    """Count a request that ends now; return its duration."""
    ended = time.perf_counter_ns()
    spent.decoded, spent.encoded = decoded - began, ended - ran
    model.statistics.succeeded(spent, ended - began)
    return ended - began


def _failed(model: Model, began: int) -> None:
    """Count a request that failed."""
    model.statistics.fail.add(time.perf_counter_ns() - began)


def client_error(error: BaseException) -> ServeError:
    """Return the error for a client; the log has the details of internal errors."""
    answer = answer_to(error)
    if answer.status >= 500 and not isinstance(error, ServeError):
        log.error("%s: %s", type(error).__name__, error, exc_info=error)
    return answer
