"""One process that serves: sockets, an event loop, REST and gRPC in it, and a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import Any

import uvicorn

from tenonnx_serve.core import Core
from tenonnx_serve.rest import App
from tenonnx_serve.rest_routes import routes
from tenonnx_serve.settings import Settings


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Returns a socket that listens.

    Args:
        host: An address, or a name of one.
        port: 0 takes a free one.
        shared: Whether other processes listen on the same port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol's number uvloop leaves Nagle's algorithm on: 44 ms a request.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock


class Server:
    """One process's server.

    Args:
        settings: What it is told.
        sock: Where REST listens.
        shared: Whether other processes listen on the same ports.

    Attributes:
        core: The models, and what runs them.
        app: The ASGI application; routes may be added to it.
        grpc_port: Where gRPC listens, once it does.
    """

    def __init__(self, settings: Settings, sock: socket.socket, *, shared: bool = False) -> None:
        self.core = Core(settings)
        self.app = App(self.core, routes())
        self._socket = sock
        self._http = uvicorn.Server(_config(self.app, settings))
        self._http.capture_signals = contextlib.nullcontext  # they are whoever's who runs it
        self._serving: asyncio.Task[None] | None = None
        self._grpc: Any = None
        self._shared = shared
        self.grpc_port = settings.grpc_port

    async def start(self) -> None:
        """Listens, answers whether it is ready, and loads the models; returns once they are.

        Raises:
            OSError: gRPC's port is taken.
            TenonnxError: A model cannot be loaded.
        """
        await self._start_grpc()
        self._serving = asyncio.create_task(self._http.serve([self._socket]))
        await self.core.repository.start()

    async def _start_grpc(self) -> None:
        settings = self.core.settings
        if settings.grpc_port is None:
            return
        from tenonnx_serve.grpc_service import make_server  # for those who want it

        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.grpc_port}"
        self._grpc, self.grpc_port = make_server(self.core, settings, address, shared=self._shared)
        await self._grpc.start()

    async def stop(self, grace: float = 10.0) -> None:
        """Takes no new requests, waits for those in flight, and ends."""
        self.core.draining = True
        self._http.config.timeout_graceful_shutdown = max(1, round(grace))
        self._http.should_exit = True
        if self._grpc is not None:
            await self._grpc.stop(grace)
        if self._serving is not None:
            await self._serving
        await self.core.close()


def _config(app: App, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=round(settings.limits.idle_seconds),
    )


async def serve(settings: Settings, sock: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    server = Server(settings, sock)
    try:
        starting = asyncio.create_task(server.start())
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
        await waiting
    finally:
        await server.stop()


def run(settings: Settings) -> None:
    """Serves in this process until it is told to end."""
    factory = uvicorn.Config(None, loop="auto").get_loop_factory()
    with (
        listen(settings.host, settings.port) as sock,
        asyncio.Runner(loop_factory=factory) as runner,
    ):
        runner.run(serve(settings, sock))
