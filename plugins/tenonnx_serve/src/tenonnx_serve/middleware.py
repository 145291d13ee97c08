"""Middleware of every HTTP request: access checks, the request's id, the log, and a trace."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from tenonnx_serve import login, logs
from tenonnx_serve.access import Gate, check_host, check_origin
from tenonnx_serve.bodies import Message, Receive
from tenonnx_serve.errors import Forbidden, Unauthorized
from tenonnx_serve.fast_path import FastPath
from tenonnx_serve.rest import ANSWERED, HEADERS, JSON, Header, failure_body
from tenonnx_serve.tracing import Tracing

Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Middleware:
    """An ASGI application in front of another one.

    Args:
        inner: The application that answers admitted requests.
        gate: Admits requests; ``None`` admits all.
        tracing: Makes a span of each request, unless it is ``None``.
        hosts: Names by which clients may call the server; ``None`` for any.
        fast_path: Answers requests before they come here; ``None`` if each must come here.

    Attributes:
        fast_path: The same.
    """

    def __init__(
        self,
        inner: Application,
        gate: Gate | None,
        tracing: Tracing | None,
        fast_path: FastPath | None = None,
        *,
        hosts: frozenset[bytes] | None,
    ) -> None:
        self._inner = inner
        self._gate = gate
        self._tracing = tracing
        self._hosts = hosts
        self._logging = logs.requests.isEnabledFor(20)
        self.fast_path = None if self._logging or tracing else fast_path

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        line = (b"x-request-id", logs.identify(headers.get(b"x-request-id")).encode())
        scope[HEADERS], scope[ANSWERED] = headers, line
        try:
            if self._gate is not None:
                cookie = headers.get(b"cookie") if scope["method"] == "GET" else None
                given = headers.get(b"authorization")
                self._gate.check(scope["path"], given, cookie=cookie)
            host = headers.get(b"host", b"")
            check_host(host, self._hosts)
            if (origin := headers.get(b"origin")) is not None:
                check_origin(origin, host)
        except (Unauthorized, Forbidden) as error:
            await _refuse(send, error, line, scope["path"])
            return
        if not (self._logging or self._tracing):
            await self._inner(scope, receive, send)
        else:
            await self._observed(scope, receive, send)

    async def _observed(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, and report the result to the log and the trace."""
        status, length, start = 0, 0, time.perf_counter()

        def noted(message: Message) -> Awaitable[None]:
            nonlocal status, length
            status = message.get("status", status)
            length += len(message.get("body", b""))
            return send(message)

        try:
            if self._tracing is None:
                await self._inner(scope, receive, noted)
            else:
                with self._tracing.request(scope) as span:
                    await self._inner(scope, receive, noted)
                    span.set_attribute("http.response.status_code", status)
        finally:
            if self._logging:
                _log(scope, status, length, time.perf_counter() - start)


async def _refuse(send: Send, error: Unauthorized | Forbidden, line: Header, path: str) -> None:
    is_page = path == "/" and isinstance(error, Unauthorized)
    body = login.FORM if is_page else failure_body(error, path)
    headers = [*(login.HEADERS if is_page else JSON), (b"content-length", b"%d" % len(body)), line]
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    start = {"type": "http.response.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _log(scope: Message, status: int, length: int, seconds: float) -> None:
    extra: dict[str, Any] = {
        "method": scope["method"],
        "path": scope["path"][:1000],
        "status": status,
        "milliseconds": round(seconds * 1000, 3),
        "bytes_out": length,
    }
    logs.requests.info("request", extra=extra)
