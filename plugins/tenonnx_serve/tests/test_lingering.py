"""A client that writes all of a request before it reads gets an answer that came early."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import NoReturn

import pytest

from servers import Running, double, serving
from tenonnx_serve import lingering
from tenonnx_serve.settings import MIB, Limits, Settings

HEAD = b"POST /v2/models/double/infer HTTP/1.1\r\nHost: localhost\r\n"
# Bytes of a body, more than the buffers of both sockets hold.
SIZE = 32 * MIB


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = double(tmp_path_factory.mktemp("models") / "double.onnx")
    limits = Limits(body=MIB, body_seconds=20)
    with serving(Settings(str(path), port=0, grpc_port=None, limits=limits)) as found:
        yield found


@contextlib.contextmanager
def connected(running: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as client:
        yield client


def rest(client: socket.socket) -> bytes:
    """Return what comes until the server ends its side."""
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


def send_on(client: socket.socket, data: bytes) -> NoReturn:
    while True:
        client.sendall(data)


def test_a_body_of_a_told_size(running: Running) -> None:
    with connected(running) as client:
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % SIZE)
        client.sendall(bytes(SIZE))
        assert rest(client).startswith(b"HTTP/1.1 413 ")


def test_a_body_of_chunks(running: Running) -> None:
    with connected(running) as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(SIZE // MIB):
            client.sendall(b"%x\r\n" % MIB + bytes(MIB) + b"\r\n")
        client.sendall(b"0\r\n\r\n")
        assert rest(client).startswith(b"HTTP/1.1 413 ")


def test_a_head(running: Running) -> None:
    with connected(running) as client:
        client.sendall(HEAD)
        for _ in range(64):
            client.sendall(b"a: " + bytes([98]) * (MIB // 4) + b"\r\n")
        assert rest(client).startswith(b"HTTP/1.1 431 ")


def test_what_follows_is_not_answered(running: Running) -> None:
    with connected(running) as client:
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (2 * MIB) + bytes(2 * MIB))
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert rest(client).count(b"HTTP/1.1 ") == 1


def test_a_client_that_sends_too_much_is_cut_off(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_BYTES", 2 * MIB)
    with connected(running) as client:
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 40))
        with pytest.raises(ConnectionError):
            send_on(client, bytes(MIB))


def test_a_client_that_never_ends_is_cut_off(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_SECONDS", 0.2)
    with connected(running) as client:
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % SIZE)
        assert rest(client).startswith(b"HTTP/1.1 413 ")
        with pytest.raises(ConnectionError):
            send_on(client, b"a")


def test_a_client_that_has_sent_all_is_not_waited_for(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_SECONDS", 1e6)
    with connected(running) as client:
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert rest(client).startswith(b"HTTP/1.1 ")
        end = time.monotonic() + 60
        while running.server._http.server_state.connections:
            assert time.monotonic() < end
            time.sleep(0.01)
