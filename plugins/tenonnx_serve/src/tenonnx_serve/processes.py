"""Worker processes of the supervisor, each with a channel."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping
from typing import Any

from tenonnx_serve.channel import Channel, Handler

# Environment variables that set the threads of kernels and of numpy's products.
THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


class WorkerProcess:
    """A worker process.

    Attributes:
        number: Its place among the workers; a replacement has the same.
        spawned: When it was started (``time.monotonic()``).
        serving_since: When it began to take requests; ``None`` before.
        counts: The last counts from it.
    """

    def __init__(self, number: int, spawned: float, process: Process, channel: Channel) -> None:
        self.number = number
        self.pid = process.pid
        self.spawned = spawned
        self.serving_since: float | None = None
        self.counts: dict[str, Any] = {}
        self._process = process
        self._channel = channel
        self._why = ""
        self._answering = asyncio.ensure_future(channel.run())

    @property
    def serving(self) -> bool:
        """Whether it takes requests: a process that has gone does not, before its end is told."""
        return self.serving_since is not None and not self._channel.closed

    async def call(self, method: str, /, **given: Any) -> Any:
        """Ask the worker; raise ``ChannelClosed`` if it has gone."""
        return await self._channel.call(method, **given)

    async def beat(self) -> None:
        """Return once the worker answers; raise ``ChannelClosed`` if it has gone."""
        await self.call("beat")

    def kill(self, why: str = "") -> None:
        """Kill the worker at once; ``why`` replaces the signal in ``ending``."""
        if self._process.returncode is None:
            self._why = why
            self._process.kill()

    async def ended(self) -> str:
        """Return how the worker ended, once it has."""
        code = await self._process.wait()
        self._channel.close()
        await self._answering
        return self._why or how(code)

    def served(self) -> float:
        """Return the seconds since it began to take requests."""
        return 0.0 if self.serving_since is None else time.monotonic() - self.serving_since


def how(code: int) -> str:
    """Return a process's end in words."""
    if code >= 0:
        return f"exited with status {code}"
    name = signal.Signals(-code).name
    if -code == signal.SIGKILL:
        return f"was killed by {name} (perhaps by the system, for lack of memory)"
    return f"was killed by {name}"


async def spawn(
    number: int, target: str, threads: int, handlers: Mapping[str, Handler]
) -> WorkerProcess:
    """Start a worker process.

    Args:
        number: Its place among the workers.
        target: ``module:name`` of the function that makes the worker's service.
        threads: How many threads its kernels have.
        handlers: Functions that the worker may call here.
    """
    spawned = time.monotonic()
    ours, theirs = socket.socketpair()
    with theirs:
        variables = dict.fromkeys(THREAD_VARIABLES, str(threads)) | os.environ
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # import no modules from the folder in which the server is started
            "-m",
            "tenonnx_serve.worker",
            str(theirs.fileno()),
            str(number),
            target,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=variables,
        )
    reader, writer = await asyncio.open_connection(sock=ours)
    return WorkerProcess(number, spawned, process, Channel(reader, writer, handlers))
