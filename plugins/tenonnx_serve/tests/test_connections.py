"""Connections that are slow, idle, too many or no HTTP, over an application of one line."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn")

from tenonnx_serve import sockets  # noqa: E402 - it imports uvicorn
from tenonnx_serve.connections import MAX_HEAD, Connection  # noqa: E402

# Bytes of an answer that no buffer of the system holds.
LARGE = 64 << 20


class Hasty(Connection):
    """A connection that waits for nobody."""

    head_seconds = 0.3


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body, or with a large answer."""
    length, more = 0, True
    while more:
        message = await receive()
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = bytes(LARGE) if scope["path"] == "/large" else str(length).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[uvicorn.Server, int]]:
    """A server in a thread, and its port."""
    config = uvicorn.Config(
        application,
        http=Hasty,
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        timeout_keep_alive=1,
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext
    sock = sockets.listening("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([sock])))
    found = sockets.port_of(sock)
    thread.start()
    yield server, found
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def port(server: tuple[uvicorn.Server, int]) -> int:
    return server[1]


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as made:
        yield made


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def read_all(made: socket.socket) -> bytes:
    """Return what comes until the server closes the connection."""
    pieces = []
    with contextlib.suppress(ConnectionError):
        while piece := made.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def answers(port: int) -> bool:
    with connected(port) as made:
        made.sendall(b"POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc")
        return read_all(made).endswith(b"\r\n\r\n3")


def test_a_head_that_takes_too_long_is_refused(port: int) -> None:
    with connected(port) as made:
        made.sendall(b"GET / HTTP/1.1\r\n")
        start = time.monotonic()
        for _ in range(20):  # a byte now and then does not help
            time.sleep(0.05)
            with contextlib.suppress(ConnectionError):
                made.send(b"a")
        assert read_all(made).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - start < 5
    assert answers(port)


@pytest.mark.parametrize("pieces", [1, 50])
def test_a_head_that_is_too_large_is_refused(port: int, pieces: int) -> None:
    with connected(port) as made:
        made.sendall(b"GET / HTTP/1.1\r\n")
        lines = b"".join(b"x-%d: %s\r\n" % (n, b"y" * 2000) for n in range(MAX_HEAD // 2000 + 20))
        size = len(lines) // pieces
        with contextlib.suppress(ConnectionError):
            for place in range(0, len(lines), size):
                made.sendall(lines[place : place + size])
            made.sendall(b"\r\n")
        assert read_all(made).startswith((b"HTTP/1.1 431 ", b""))
    assert answers(port)


def test_too_many_headers_are_refused(port: int) -> None:
    with connected(port) as made:
        made.sendall(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n")
        read_all(made)
    assert answers(port)


def test_what_is_no_http_is_refused(port: int) -> None:
    for sent in (b"\x16\x03\x01\x02\x00", b"\0" * 1000, b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 50):
        with connected(port) as made:
            made.sendall(sent)
            made.shutdown(socket.SHUT_WR)
            assert not read_all(made).startswith(b"HTTP/1.1 200")
    assert answers(port)


def test_idle_connections_are_closed(port: int) -> None:
    """One that never asked, and one that has been answered."""
    with connected(port) as silent, connected(port) as asked:
        asked.sendall(b"GET / HTTP/1.1\r\n\r\n")
        start = time.monotonic()
        assert read_all(silent) == b""
        assert read_all(asked).endswith(b"\r\n\r\n0")
        assert time.monotonic() - start < 5


@pytest.mark.parametrize("line", [b"", b"connection: close\r\n"])
def test_a_client_that_does_not_read_is_given_up(
    server: tuple[uvicorn.Server, int], line: bytes
) -> None:
    held = server[0].server_state.connections
    until(lambda: not held)  # of other tests
    with connected(server[1]) as made:
        made.sendall(b"GET /large HTTP/1.1\r\n" + line + b"\r\n")
        until(lambda: held)
        until(lambda: not held)
        assert len(read_all(made)) < LARGE


def test_a_client_that_reads_slowly_is_not(port: int) -> None:
    with connected(port) as made:
        made.sendall(b"GET /large HTTP/1.1\r\nconnection: close\r\n\r\n")
        received = 0
        while piece := made.recv(4 << 20):
            received += len(piece)
            time.sleep(0.05)
        assert received > LARGE


def test_a_thousand_idle_connections_are_no_burden(port: int) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(1000):
            held.enter_context(connected(port))
        assert answers(port)
