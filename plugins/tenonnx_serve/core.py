"""What both protocols ask: find a model, run a request on it, within the limits."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tenonnx_serve.errors import Busy, ServeError, TimedOut, Unavailable, answer_to
from tenonnx_serve.model import Model
from tenonnx_serve.repository import Repository
from tenonnx_serve.requests import Array, Request
from tenonnx_serve.settings import Settings
from tenonnx_serve.threads import Stop, Threads

log = logging.getLogger("tenonnx.serve")


class Core:
    """A server's models and the threads that they run in; made in the event loop's thread.

    Attributes:
        settings: What the server was told.
        repository: The models.
        threads: Where they run.
        draining: Set once the server takes no new requests.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.repository = Repository(settings)
        self.threads = Threads(settings.runs, "tenonnx-run")
        self.draining = False
        self._waiting: dict[str, int] = {}

    @property
    def ready(self) -> bool:
        """Whether it takes requests: all models that were to be loaded are."""
        return self.repository.ready and not self.draining

    async def infer(self, model: Model, request: Request) -> list[Array]:
        """Returns the outputs that a request wants.

        If the caller is cancelled, the run is stopped.

        Raises:
            ServeError: There is too much to do, or it takes too long, or the model fails.
        """
        if self.draining:
            raise Unavailable("the server is about to stop")
        waiting = self._waiting.get(model.name, 0)
        if waiting >= self.settings.limits.waiting:
            raise Busy(f"model '{model.name}' has {waiting} requests waiting already")
        self._waiting[model.name] = waiting + 1
        try:
            return await self._run(model, request)
        finally:
            self._waiting[model.name] -= 1

    async def _run(self, model: Model, request: Request) -> list[Array]:
        seconds = min(self.settings.limits.seconds, request.timeout or float("inf"))
        stop = Stop(seconds)
        future = self.threads.submit(lambda: model.run(request.inputs, request.outputs, stop))
        timer = asyncio.get_running_loop().call_later(seconds, _expire, future, stop)
        try:
            outputs: list[Array] = await future
        except asyncio.CancelledError:
            stop.reason = "the client went away"
            raise
        except Exception as error:
            raise told(error) from error
        finally:
            timer.cancel()
        return outputs

    async def close(self) -> None:
        """Ends the threads, once what runs has ended."""
        await asyncio.to_thread(self.threads.stop)
        await self.repository.close()


def _expire(future: asyncio.Future[Any], stop: Stop) -> None:
    stop.reason = f"the request took longer than {stop.seconds:g} s"
    if not future.done():
        future.set_exception(TimedOut(stop.reason))


def told(error: BaseException) -> ServeError:
    """Returns what a client is told of an exception; the log has what it is not told."""
    answer = answer_to(error)
    if answer.status >= 500 and not isinstance(error, ServeError):
        log.error("%s: %s", type(error).__name__, error, exc_info=error)
    return answer
