"""Connections of HTTP: how large a request's head may be, and how long a client may take.

uvicorn limits neither the head of a request nor the time that it takes to come, nor does it notice
a client that does not read its answer. Bodies are limited where they are read.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tenonnx_serve.corked import Corked

MAX_HEAD = 64 << 10
"""Bytes of a request's line and headers."""

MAX_HEADERS = 256
"""Headers of a request, trailers among them."""

HEAD_SECONDS = 20.0
"""How long a head may take to come, once it has begun."""


class Connection(HttpToolsProtocol):  # type: ignore[misc]  # the checker sees no uvicorn
    """uvicorn's protocol with limits.

    Attributes:
        head_seconds: How long a head may take.
    """

    head_seconds: ClassVar[float] = HEAD_SECONDS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._reading_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begins to wait for a first request."""
        super().connection_made(transport)
        self.transport = Corked(transport)
        self._wait_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the timers, which would keep the connection."""
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads a piece of one or several requests."""
        self._head_bytes = self._head_bytes + len(data) if self._reading_head else len(data)
        super().data_received(data)
        if self._reading_head:
            if self._head_bytes > MAX_HEAD:
                self._refuse(431, "the request's headers are too large")
            elif self._head_timer is None:
                timer = self.loop.call_later(self.head_seconds, self._refuse_slow)
                self._head_timer = timer
        elif self.headers is not None and len(self.headers) > MAX_HEADERS:
            self._refuse(431, "the request has too many headers")

    def on_message_begin(self) -> None:
        """Notes that a head begins."""
        self._reading_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Notes that a head is whole, and looks how large it is if it may be too large."""
        self._reading_head = False
        self._stop_head_timer()
        if self._head_bytes > MAX_HEAD:
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > MAX_HEAD:
                self._refuse(431, "the request's headers are too large")
                raise ValueError("the head is too large")  # the parser goes no further
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Waits for the next request, or for the client to have read this answer."""
        self.transport.flush()  # the head of an answer without a body
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._wait_idle()

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection; one whose answer is being read stays, for as long as it is."""
        unsent = self.transport.get_write_buffer_size()
        if unsent and (self._unsent == 0 or unsent < self._unsent):
            self._unsent = unsent
            self._wait_idle()
        elif unsent:
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Says that a request is no HTTP, unless what is wrong was said already."""
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _wait_idle(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_slow(self) -> None:
        self._refuse(408, "the request's headers take too long")

    def _refuse(self, status: int, why: str) -> None:
        if self.transport.is_closing():
            return
        body = b'{"error":"%s"}' % why.encode()
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(
                STATUS_LINE[status]
                + b"content-type: application/json\r\nconnection: close\r\n"
                + b"content-length: %d\r\n\r\n" % len(body)
                + body
            )
        self.transport.close()
