"""A worker process: its channel to the supervisor, and its end.

It loads models and warms them up, and listens when the supervisor says so. It ends when the
supervisor says so, when it gets SIGTERM, or when the supervisor dies, which closes the channel.
Each time it finishes running requests first, within the time limit. SIGINT, which a terminal sends
to all processes of a command, is left to the supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from tenonnx_serve.channel import Channel, ChannelClosed, Handler

logger = logging.getLogger("tenonnx.serve")

# Seconds between two reports of a worker's counts: a worker that dies loses no more.
REPORT_SECONDS = 1.0

# Seconds after which a thread that computes lets the event loop have the interpreter: a request
# has to wait for it once or twice.
SWITCH_SECONDS = 0.001


class Service(Protocol):
    """The service in a worker. Only ``snapshot`` may be called while another method runs."""

    async def start(
        self, settings: dict[str, Any], models: Mapping[str, Mapping[str, Any]] | None
    ) -> dict[str, str]:
        """Load and warm up the given models with these parameters, or those of the settings.

        Returns:
            By name, a digest of the files that a model was loaded from.
        """

    async def listen(self) -> None:
        """Begin to take requests."""

    def agreed(self) -> None:
        """Note that all workers serve: the server is ready."""

    async def prepare(self, action: str, name: str, parameters: dict[str, Any]) -> tuple[Any, str]:
        """Do the part of a change (``load`` or ``unload``) that requests do not see.

        Returns:
            The prepared change, and the digest of its files, ``""`` for none.
        """

    def commit(self, prepared: Any) -> None:
        """Make a change visible; a loaded model is not ready yet. Raises nothing."""

    def settle(self, prepared: Any) -> None:
        """Complete a change that all workers have committed."""

    def discard(self, prepared: Any) -> None:
        """Drop a change. Raises nothing."""

    def switch(self, asked: dict[str, Any]) -> None:
        """Change the log's settings, in all workers alike."""

    async def snapshot(self) -> dict[str, Any]:
        """Return the counts since the start (``counted``) and the present state (``now``)."""

    async def drain(self, seconds: float) -> None:
        """Stop listening and finish what has begun, for so many seconds at most."""


class SupervisorControl:
    """A service's calls of the supervisor."""

    channel: Channel

    async def change(self, action: str, name: str, parameters: Mapping[str, Any]) -> None:
        """Load or unload a model in all workers, or raise and change none."""
        await self.channel.call("change", action=action, name=name, parameters=dict(parameters))

    async def switch(self, asked: Mapping[str, Any]) -> None:
        """Change the log's settings in all workers, also in later ones."""
        await self.channel.call("switch", asked=dict(asked))

    async def collect(self) -> dict[str, Any]:
        """Return the sum of all workers' counts, in ``Supervisor``'s form."""
        found: dict[str, Any] = await self.channel.call("collect")
        return found


class Worker:
    """One worker's side of the channel.

    Args:
        service: The service of this worker.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._prepared: dict[int, asyncio.Task[tuple[Any, str]]] = {}
        self._leaving = asyncio.Event()
        self._drain_seconds = 0.0
        self.handlers: dict[str, Handler] = {
            "start": service.start,
            "listen": self._listen,
            "agreed": self._agreed,
            "prepare": self._prepare,
            "commit": self._commit,
            "settle": self._settle,
            "discard": self._discard,
            "snapshot": service.snapshot,
            "drain": self._drain,
            "beat": self._beat,
            "switch": self._switch,
        }

    async def run(self, channel: Channel) -> None:
        """Handle calls until it must leave."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._leaving.set)
        answering = asyncio.create_task(channel.run())
        answering.add_done_callback(lambda _: self._leaving.set())
        reporting = asyncio.create_task(self._report_counts(channel))
        await self._leaving.wait()
        reporting.cancel()
        with contextlib.suppress(TimeoutError):  # longer requests end with the process
            async with asyncio.timeout(self._drain_seconds + 1):
                await self._service.drain(self._drain_seconds)
        channel.close()

    async def _report_counts(self, channel: Channel) -> None:
        with contextlib.suppress(ChannelClosed):
            while True:
                await asyncio.sleep(REPORT_SECONDS)
                await channel.call("tell", counted=await self._service.snapshot())

    async def _listen(self, drain_seconds: float) -> None:
        self._drain_seconds = drain_seconds
        await self._service.listen()

    async def _agreed(self) -> None:
        self._service.agreed()

    async def _prepare(
        self, ticket: int, action: str, name: str, parameters: dict[str, Any]
    ) -> str:
        doing = asyncio.ensure_future(self._service.prepare(action, name, parameters))
        self._prepared[ticket] = doing
        return (await doing)[1]

    async def _commit(self, ticket: int) -> None:
        self._service.commit((await self._prepared[ticket])[0])

    async def _settle(self, ticket: int) -> None:
        self._service.settle((await self._prepared.pop(ticket))[0])

    async def _discard(self, ticket: int) -> None:
        doing = self._prepared.pop(ticket, None)
        if doing is not None:
            # A late handler may still run: nobody waits for it.
            doing.add_done_callback(self._forget)

    def _forget(self, done: asyncio.Task[tuple[Any, str]]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._service.discard(done.result()[0])

    async def _beat(self) -> None:
        """Answer the supervisor's ping."""

    async def _switch(self, asked: dict[str, Any]) -> None:
        self._service.switch(asked)

    async def _drain(self, seconds: float) -> None:
        self._drain_seconds = seconds
        self._leaving.set()


async def _serve(channel_fd: int, target: str) -> None:
    module, _, name = target.partition(":")
    control = SupervisorControl()
    worker = Worker(getattr(importlib.import_module(module), name)(control))
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=channel_fd))
    control.channel = Channel(reader, writer, worker.handlers)
    await worker.run(control.channel)


def allow_connections() -> None:
    """Raise the limit of open files to its maximum: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    """Run a worker; the first argument is its channel's file descriptor."""
    channel_fd, number, target = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TENONNX_SERVE_WORKER"] = str(number)
    allow_connections()
    sys.setswitchinterval(SWITCH_SECONDS)
    import uvloop

    uvloop.run(_serve(channel_fd, target))
    # Cancelled requests may have left a thread in a run, and a normal exit would wait for it.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
