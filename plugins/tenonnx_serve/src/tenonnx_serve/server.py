"""One process's server: REST and gRPC in one event loop, with a graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import uvicorn

from tenonnx_serve import sockets
from tenonnx_serve.access import Gate, hosts_of
from tenonnx_serve.connections import Connection
from tenonnx_serve.core import Core
from tenonnx_serve.fast_path import FastPath
from tenonnx_serve.middleware import Middleware
from tenonnx_serve.rest import App
from tenonnx_serve.rest_routes import routes
from tenonnx_serve.settings import Settings
from tenonnx_serve.tracing import Tracing


class Server:
    """One process's server.

    Args:
        settings: The server's settings.
        shared: Whether other processes listen on the same ports.

    Attributes:
        core: The models and their threads.
        app: The ASGI application; routes may be added to it.
        grpc_port: The port of gRPC, once it listens.
    """

    def __init__(self, settings: Settings, *, shared: bool = False) -> None:
        self.core = Core(settings)
        self.app = App(self.core, routes())
        token = settings.access.read_token()
        self._gate = Gate(token, settings.access.read_control_token()) if token else None
        self._tracing = Tracing() if settings.trace else None
        hosts = hosts_of(settings.host, settings.access.hosts)
        fast_path = FastPath(self.core, self._gate, hosts)
        middleware = Middleware(self.app, self._gate, self._tracing, fast_path, hosts=hosts)
        self._http = uvicorn.Server(_config(middleware, settings))
        self._http.capture_signals = contextlib.nullcontext  # the caller handles signals
        self._serving: asyncio.Task[None] | None = None
        self._grpc: Any = None
        self._shared = shared
        self.grpc_port = settings.grpc_port

    async def start(self, sock: socket.socket) -> None:
        """Listen, answer readiness probes, and return once the models are loaded.

        Raises:
            OSError: gRPC's port is taken.
            TenonnxError: A model cannot be loaded.
        """
        await self.listen(sock)
        await self.core.repository.start()

    async def listen(self, sock: socket.socket) -> None:
        """Take requests; REST's on a listening socket.

        Raises:
            OSError: gRPC's port is taken.
        """
        await self._start_grpc()
        self._serving = asyncio.create_task(self._http.serve([sock]))

    async def _start_grpc(self) -> None:
        settings = self.core.settings
        if settings.grpc_port is None:
            return
        from tenonnx_serve import grpc_interceptor, grpc_service

        address = sockets.address(settings.host, settings.grpc_port)
        interceptor = grpc_interceptor.GrpcInterceptor(self._gate, self._tracing)
        self._grpc, self.grpc_port = grpc_service.make_server(
            self.core, settings, address, shared=self._shared, interceptor=interceptor
        )
        await self._grpc.start()

    async def stop(self, grace: float = 10.0) -> None:
        """Take no new requests, wait for the running ones, and end."""
        self.core.draining = True
        self._http.config.timeout_graceful_shutdown = max(1, round(grace))
        self._http.should_exit = True
        if self._grpc is not None:
            await self._grpc.stop(grace)
        if self._serving is not None:
            await self._serving
        await self.core.close()


def _config(app: Middleware, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ssl_certfile=settings.access.certificate or None,
        ssl_keyfile=settings.access.key or None,
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=settings.limits.connections + 1,  # Connection refuses that many
        timeout_keep_alive=round(settings.limits.idle_seconds),
    )
