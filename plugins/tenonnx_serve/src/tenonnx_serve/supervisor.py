"""The supervisor: a process that starts workers, replaces them, and keeps their models equal."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import signal
import time
from collections.abc import Callable
from typing import Any

from tenonnx.errors import Fail, TenonnxError
from tenonnx_serve import heartbeat, sockets, switches
from tenonnx_serve.backoff import Backoff
from tenonnx_serve.channel import ChannelClosed, Handler
from tenonnx_serve.counts import add
from tenonnx_serve.errors import ServeError
from tenonnx_serve.memory import of_process
from tenonnx_serve.model_sync import ModelSync
from tenonnx_serve.processes import WorkerProcess, spawn

logger = logging.getLogger("tenonnx.serve")

# The most deaths of workers in a row before the server has ever been ready.
DEATHS_AT_START = 3

# Seconds to wait for workers' counts before their last known counts are used.
TELL_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class Deployment:
    """The workers that a supervisor runs, and their settings.

    Attributes:
        target: ``module:name`` of the function that makes a worker's service from ``settings``.
        settings: The workers' settings, as JSON has them. ``host``, ``port`` and ``grpc_port``
            (``None`` for no gRPC) are the addresses to listen on.
        workers: How many workers.
        threads: The threads of each worker's kernels.
        drain_seconds: How long running requests may take when the server stops.
        load_seconds: How long all workers may take to load a model.
        idle_seconds: How long a worker may be silent while it does nothing.
    """

    target: str
    settings: dict[str, Any]
    workers: int
    threads: int
    drain_seconds: float = 30.0
    load_seconds: float = 600.0
    idle_seconds: float = 20.0


class Supervisor:
    """Workers that run until a signal or ``stop`` ends them.

    Args:
        deployment: The deployment.
        ready: Called once when all workers serve, with the settings that they listen on.
    """

    def __init__(self, deployment: Deployment, ready: Callable[[dict[str, Any]], None]) -> None:
        self._deployment = deployment
        self._settings = dict(deployment.settings)
        self._tell_ready = ready
        self._model_sync = ModelSync(deployment.load_seconds)
        self._workers: dict[int, WorkerProcess] = {}
        self._deaths = 0
        self._switched: dict[str, Any] = {}
        self._retired: dict[str, Any] = {}
        self._started = time.time()
        self._was_ready = False
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Drain and end the workers and ``run``; kill them if called again."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self) -> None:
        """Run until ``stop``, SIGTERM or SIGINT ends it.

        Raises:
            InvalidArgument: A port is taken.
            TenonnxError: A worker cannot start, and the server was never ready.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        with contextlib.ExitStack() as held:
            for key in ("port", "grpc_port"):
                if self._settings[key] is not None:
                    made = sockets.reserve(self._settings["host"], self._settings[key])
                    self._settings[key] = sockets.port_of(held.enter_context(made))
            keeping = [asyncio.create_task(self._keep(n)) for n in range(self._deployment.workers)]
            told = asyncio.create_task(self._stop.wait())
            try:
                done, _ = await asyncio.wait([*keeping, told], return_when=asyncio.FIRST_COMPLETED)
                for task in done - {told}:
                    task.result()  # raises if the server cannot start
            finally:
                for task in (*keeping, told):
                    task.cancel()
                await asyncio.gather(*keeping, told, return_exceptions=True)
                await self._drain()

    async def _keep(self, number: int) -> None:
        """Keep one worker running."""
        backoff = Backoff()
        while True:
            handlers: dict[str, Handler] = {
                "change": self._change,
                "switch": self._switch,
                "collect": self._collect,
                "tell": functools.partial(self._store_counts, number),
            }
            deployment = self._deployment
            worker = await spawn(number, deployment.target, deployment.threads, handlers)
            self._workers[number] = worker
            watching = asyncio.create_task(
                heartbeat.watch(worker, deployment.idle_seconds, deployment.load_seconds)
            )
            failed = await self._bring_up(worker)
            ending = await worker.ended()
            watching.cancel()
            self._model_sync.leave(number)
            del self._workers[number]
            self._deaths += 1
            # Counters of a server never go down, or rates of its metrics would be negative.
            add(self._retired, worker.counts.get("counted", {}))
            delay = backoff.died(worker.served())
            # A server that never was ready ends, so that its operator sees why. One that was ready
            # goes on trying, because the cause may pass.
            if not self._was_ready and (failed or backoff.deaths >= DEATHS_AT_START):
                raise failed or Fail(
                    f"worker {number} {ending}, {backoff.deaths} times before it was ready",
                    hint="its output is above; tenonnx -v serve prints more",
                )
            self._tell_death(worker, ending, delay, failed)
            await asyncio.sleep(delay)

    async def _bring_up(self, worker: WorkerProcess) -> TenonnxError | None:
        """Make a worker load the others' models and listen; return the error if it cannot."""
        models = self._model_sync.models
        wanted = None if models is None else {name: given for name, (_, given) in models.items()}
        try:
            async with asyncio.timeout(self._deployment.load_seconds):
                found = await worker.call("start", settings=self._settings, models=wanted)
            await self._model_sync.admit(worker, found, lambda: self._listen(worker))
        except ChannelClosed:
            return None
        except TenonnxError as error:
            failed = error
        except ServeError as error:
            failed = Fail(str(error))
        except TimeoutError:
            seconds = self._deployment.load_seconds
            failed = Fail(f"worker {worker.number} took longer than {seconds:g} s to start")
        else:
            return None
        worker.kill()
        return failed

    async def _listen(self, worker: WorkerProcess) -> None:
        if self._switched:
            await worker.call("switch", asked=self._switched)
        await worker.call("listen", drain_seconds=self._deployment.drain_seconds)
        worker.serving_since = time.monotonic()
        seconds = worker.serving_since - worker.spawned
        logger.info("worker %d (pid %d) serves after %.2f s", worker.number, worker.pid, seconds)
        serving = [each for each in self._workers.values() if each.serving]
        if self._was_ready:
            await worker.call("agreed")
        elif len(serving) == self._deployment.workers:
            self._was_ready = True
            calls = (each.call("agreed") for each in serving)
            await asyncio.gather(*calls, return_exceptions=True)
            self._tell_ready(self._settings)

    def _tell_death(
        self, worker: WorkerProcess, ending: str, delay: float, failed: TenonnxError | None
    ) -> None:
        why = f": {failed.args[0]}" if failed else ""
        when = f"in {delay:g} s" if delay else "at once"
        logger.error(
            "worker %d (pid %d) %s%s; it restarts %s, %d of %d serve",
            worker.number, worker.pid, ending, why, when,
            sum(each.serving for each in self._workers.values()),
            self._deployment.workers,
        )  # fmt: skip

    async def _drain(self) -> None:
        """End all workers; those that serve finish their requests."""
        left = list(self._workers.values())
        for each in left:
            if each.serving_since is None:  # it has no requests, and loading may take long
                each.kill()
        seconds = self._deployment.drain_seconds
        calls = [asyncio.ensure_future(each.call("drain", seconds=seconds)) for each in left]
        ends: asyncio.Future[Any] = asyncio.gather(*(each.ended() for each in left))
        hurried: asyncio.Future[Any] = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait(
            [ends, hurried], timeout=seconds + 2, return_when=asyncio.FIRST_COMPLETED
        )
        for each in left:
            each.kill()
        await ends
        hurried.cancel()
        await asyncio.gather(*calls, hurried, return_exceptions=True)

    async def _change(self, action: str, name: str, parameters: dict[str, Any]) -> None:
        await self._model_sync.change(action, name, parameters)
        logger.info("%s of model %s: done by all workers", action, name)

    async def _switch(self, asked: dict[str, Any]) -> None:
        switches.log(asked)  # raises if the settings are wrong
        workers = list(self._workers.values())
        calls = (each.call("switch", asked=asked) for each in workers)
        self._switched |= asked
        await asyncio.gather(*calls, return_exceptions=True)

    async def _store_counts(self, number: int, counted: dict[str, Any]) -> None:
        if number in self._workers:
            self._workers[number].counts = counted

    async def _collect(self) -> dict[str, Any]:
        """Return the sum of all workers' counts, those that died included."""
        workers = list(self._workers.values())

        async def ask(worker: WorkerProcess) -> None:
            with contextlib.suppress(ChannelClosed, TimeoutError, TenonnxError, ServeError):
                async with asyncio.timeout(TELL_SECONDS):
                    worker.counts = await worker.call("snapshot")

        # A worker that starts does not answer before it has loaded its models.
        await asyncio.gather(*(ask(each) for each in workers if each.serving))
        return {
            "started": self._started,
            "deaths": self._deaths,
            "wanted": self._deployment.workers,
            "retired": self._retired,
            "workers": [
                {
                    "number": worker.number,
                    "pid": worker.pid,
                    "serving": worker.serving,
                    "memory": of_process(worker.pid),
                    **worker.counts,
                }
                for worker in workers
            ],
        }
