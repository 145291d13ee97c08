"""Servers for tests: one in this process, whose event loop has a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from tenonnx_serve import sockets
from tenonnx_serve.server import Server
from tenonnx_serve.settings import Settings

HEADER = '<ir_version: 10, opset_import: ["": 21]>'


def save(path: Path, text: str) -> Path:
    """Write a model that is given in ONNX's text form."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(f"{HEADER} {text}"), path)
    return path


def double(path: Path) -> Path:
    """Write a model of ``y = x + x``, of any number of rows of four."""
    return save(path, "g (float[n,4] x) => (float[n,4] y) { y = Add(x, x) }")


class Running:
    """A server that runs."""

    def __init__(self, settings: Settings, server: Server, port: int) -> None:
        self.settings = settings
        self.grpc_address = f"127.0.0.1:{server.grpc_port}"
        self.server = server
        self.port = port
        self.address = f"127.0.0.1:{port}"

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Return status, body and headers of one request; JSON comes decoded."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body)
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        found = {name.lower(): value for name, value in answer.getheaders()}
        is_json = found.get("content-type") == "application/json"
        return answer.status, json.loads(content) if is_json and content else content, found


@contextlib.contextmanager
def serving(settings: Settings) -> Iterator[Running]:
    """Run a server in a thread of this process."""
    started, failed = threading.Event(), list[BaseException]()
    loop = asyncio.new_event_loop()
    held: list[Any] = []

    async def main() -> None:
        sock = sockets.listening(settings.host, settings.port)
        server = Server(settings)
        ended = asyncio.Event()
        held.extend([server, sock.getsockname()[1], ended])
        try:
            await server.start(sock)
            started.set()
            await ended.wait()
        finally:
            await server.stop(1)

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(main())
        except BaseException as error:
            failed.append(error)
        started.set()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait(60)
    try:
        if not failed:
            yield Running(settings, held[0], held[1])
    finally:
        if not failed:
            loop.call_soon_threadsafe(held[2].set)
        thread.join(30)
    if failed:
        raise failed[0]
