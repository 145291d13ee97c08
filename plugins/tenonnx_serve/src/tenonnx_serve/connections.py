"""HTTP connections: limits of a head's size and of a client's time.

uvicorn limits neither the size of a request's head nor the time until it has come, and does not
notice a client that does not read its answer. Bodies are limited where they are read.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tenonnx_serve.core import MIN_THREADED_BYTES
from tenonnx_serve.lingering import LingeringTransport

# The largest request line with its headers, in bytes.
MAX_HEAD = 64 << 10

# The most headers of a request, with trailers.
MAX_HEADERS = 256

# Seconds in which a head has to come, from its first byte.
HEAD_SECONDS = 20.0

# Seconds to wait for the rest of a request that may be answered at once: many clients send head
# and body in two pieces.
HOLD_SECONDS = 0.02


# Seconds that a client which sends no more may wait for its answer.
HALF_CLOSED_SECONDS = 2.0

# Seconds that an idle connection stays open after the server was told to stop: the client may
# have sent a request meanwhile.
IDLE_SECONDS_WHILE_DRAINING = 1.0

# Seconds in which the rest of a request has to come after its answer, such as that a model does not
# exist: a request that is read has as long (Limits.body_seconds).
UNREAD_SECONDS = 60.0


class Connection(HttpToolsProtocol):  # type: ignore[misc]  # the checker sees no uvicorn
    """uvicorn's protocol, with limits.

    Attributes:
        head_seconds: How long a head may take to come.
    """

    head_seconds: ClassVar[float] = HEAD_SECONDS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._reading = False
        self._reading_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._fast_path: Any = getattr(self.config.app, "fast_path", None)
        self._fresh = False
        self._held: bytes | None = None
        self._holding: asyncio.TimerHandle | None = None
        self._draining = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the timer of the first request."""
        super().connection_made(LingeringTransport(transport, self._is_unread))
        self._wait_idle()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._refuse(503, "the server has too many connections")

    def eof_received(self) -> bool:
        """Keep a connection open whose client waits for an answer but sends no more.

        A client that went away looks the same, so it is not kept for long.
        """
        cycle = self.cycle
        if self.scheme == "https" or cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        self.loop.call_later(HALF_CLOSED_SECONDS, self.transport.close)
        return True  # the transport stays open

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, which would keep the connection."""
        self._stop_head_timer()
        self._release()
        self._unset_keepalive_if_required()
        self.transport.forget()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Answer requests that were sent already, and tell the client to close."""
        self._draining = True
        if self._held is not None:
            self._let_go()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self.loop.call_later(IDLE_SECONDS_WHILE_DRAINING, self._close_if_idle)

    def _is_unread(self) -> bool:
        """Return whether the connection has its last answer before its last request's end."""
        return self._reading and (self.cycle is None or self.cycle.response_complete)

    def _close_if_unread(self, cycle: Any) -> None:
        if self.cycle is cycle and self._is_unread():
            self.transport.close()

    def _close_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Read a piece of one or several requests."""
        if self.transport.lingering:
            self.transport.drop(data)
            return
        # A piece may have more than the head, so this is a bound; the exact size is found later.
        self._head_bytes = self._head_bytes + len(data) if self._reading_head else len(data)
        self._fresh = True
        super().data_received(data)
        if self._held is not None and self._holding is None:
            self._holding = self.loop.call_later(HOLD_SECONDS, self._let_go)
        if self._reading_head:
            if self._head_bytes > MAX_HEAD:
                self._refuse(431, "the request's headers are too large")
            elif self._head_timer is None:
                timer = self.loop.call_later(self.head_seconds, self._refuse_slow)
                self._head_timer = timer
        elif self.headers is not None and len(self.headers) > MAX_HEADERS:
            self._refuse(431, "the request has too many headers")

    def on_message_begin(self) -> None:
        """Start the timer of a head."""
        self._reading = self._reading_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End the timer of a head, and measure a head that may be too large."""
        self._reading_head = False
        self._stop_head_timer()
        if self._head_bytes > MAX_HEAD:
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > MAX_HEAD:
                self._refuse(431, "the request's headers are too large")
                raise ValueError("the head is too large")  # stops the parser
        if self._may_take_fast_path():
            self._held = b""
        else:
            self._begin_cycle()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        if self._held is not None and len(self._held) + len(body) < MIN_THREADED_BYTES:
            self._held += body
            return
        if self._held is not None:
            self._let_go()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Answer a complete request at once if that is quick; else the application answers it."""
        self._reading = False
        if self._held is not None:
            answer = None
            if len(self.headers) <= MAX_HEADERS:
                answer = self._fast_path.answer(self.url, self.headers, self._held)
            if answer is not None:
                self._release()
                self.transport.write(answer)
                self.on_response_complete()
                return
            self._let_go()
        super().on_message_complete()

    def _may_take_fast_path(self) -> bool:
        """Return whether a request may be answered without the application, if it came whole.

        Only the first one of the received requests may: many would keep other clients waiting.
        """
        fresh, self._fresh = self._fresh, False
        return (
            fresh
            and self._fast_path is not None
            and not self._draining
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.expect_100_continue
            and not self.transport.is_closing()
        )

    def _let_go(self) -> None:
        """Pass a held request, with the received part of its body, to the application."""
        body = self._release()
        if body is None or self.transport.is_closing():
            return
        self._begin_cycle()
        if body:
            super().on_body(body)

    def _begin_cycle(self) -> None:
        """Pass a request's head to the application."""
        super().on_headers_complete()
        if self._draining and self.cycle is not None:
            self.cycle.keep_alive = False

    def _release(self) -> bytes | None:
        """Return the held request and hold nothing."""
        body, self._held = self._held, None
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
        return body

    def on_response_complete(self) -> None:
        """Wait for the next request, or until the client has read this answer."""
        super().on_response_complete()
        if self._is_unread():
            self.loop.call_later(UNREAD_SECONDS, self._close_if_unread, self.cycle)
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._wait_idle()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, but not one whose answer the client still reads."""
        # Fewer bytes than at the last look: the client reads, if slowly.
        unsent = self.transport.get_write_buffer_size()
        if unsent and (self._unsent == 0 or unsent < self._unsent):
            self._unsent = unsent
            self._wait_idle()
        elif unsent:
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Answer that a request is not HTTP, unless another error was answered already."""
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
