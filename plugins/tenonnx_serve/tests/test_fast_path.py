"""Requests that are answered without the application: nothing but their time changes."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn")

from servers import Running, double, serving
from tenonnx_serve.access import Access
from tenonnx_serve.settings import Settings

pytestmark = pytest.mark.usefixtures("short_runs")

PATH = "/v2/models/model/infer"
DATA = np.arange(8, dtype=np.float32).reshape(2, 4)


def asked(**more: Any) -> dict[str, Any]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": DATA.ravel().tolist()}
    return {"inputs": [tensor | more], "id": "mine"}


def request(body: bytes, *lines: str, version: str = "1.1") -> bytes:
    length = f"Content-Length: {len(body)}"
    head = (f"POST {PATH} HTTP/{version}", "Host: localhost", length, *lines)
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = double(tmp_path_factory.mktemp("fast_path") / "model.onnx")
    with serving(Settings(str(path), port=0, grpc_port=None)) as found:
        warm(found)
        yield found


def warm(running: Running, **headers: str) -> None:
    queue = running.server.core.repository.find("model")
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if queue.has_short_runs:
            return
        assert running.call("POST", PATH, asked(), headers)[0] == 200
        time.sleep(0.01)  # what a run took is noted after its answer
    raise AssertionError("no run was short")


@pytest.fixture
def found(running: Running, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Whether each request that came whole was answered at once."""
    told: list[Any] = []
    core = running.server.core

    def noted(*given: Any) -> Any:
        answer = type(core).run_inline(core, *given)
        told.append(answer is not None)
        return answer

    monkeypatch.setattr(core, "run_inline", noted)
    return told


def exchanged(running: Running, *pieces: bytes, pause: float = 0.05) -> bytes:
    """Return what comes for pieces that are sent one after the other."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            made.sendall(piece)
            time.sleep(pause)
        made.shutdown(socket.SHUT_WR)
        answer = b""
        while part := made.recv(1 << 16):
            answer += part
        return answer


@pytest.mark.parametrize("rows", [2, 200])
@pytest.mark.parametrize(
    ("accepted", "binary"), [("", False), ("", True), ("identity", True), ("gzip, deflate", True)]
)
def test_an_answer_is_the_application_s(
    running: Running, found: list[Any], rows: int, accepted: str, binary: bool
) -> None:
    """One that says Upgrade is left to the application."""
    body = asked(shape=[rows, 4], data=[0.5] * rows * 4)
    body |= {"parameters": {"binary_data_output": binary}}
    headers = {"X-Request-Id": "a-1", "Accept-Encoding": accepted}
    for _ in range(200):  # a size that was not there before
        if found[-1:] == [True]:
            break
        running.call("POST", PATH, body, headers)
    found.clear()
    answers = [
        running.call("POST", PATH, body, headers | more) for more in ({}, {"Upgrade": "h2c"})
    ]
    assert found in ([True], []), "the second one is the application's"
    assert answers[0] == answers[1]
    assert answers[0][2]["x-request-id"] == "a-1"
    packed = "gzip" in accepted and rows > 2
    assert answers[0][2].get("content-encoding") == ("gzip" if packed else None)


def test_a_request_in_pieces_is_answered(running: Running, found: list[Any]) -> None:
    whole = request(json.dumps(asked()).encode())
    for cut in (10, whole.index(b"\r\n\r\n") + 4, len(whole) - 3):
        for pause in (0.0, 0.1):
            answer = exchanged(running, whole[:cut], whole[cut:], pause=pause)
            assert b" 200 OK" in answer
            assert b'"mine"' in answer
    assert len(found) >= 1, "what is not waited for is the application's"


def test_a_request_of_many_pieces_is_answered(running: Running) -> None:
    body = json.dumps(asked(shape=[30_000, 4], data=[0.25] * 120_000)).encode()
    assert len(body) > 1 << 18
    answer = exchanged(running, request(body), pause=0)
    assert b" 200 OK" in answer
    assert answer.count(b"0.5") == 120_000


def test_a_request_that_has_begun_is_answered_at_the_end(tmp_path: Path) -> None:
    path = double(tmp_path / "model.onnx")
    whole = request(json.dumps(asked()).encode())
    with serving(Settings(str(path), port=0, grpc_port=None)) as server:
        warm(server)
        made = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        made.sendall(whole[:-3])
        time.sleep(0.1)
        timer = threading.Timer(0.2, made.sendall, (whole[-3:],))
        timer.start()
    with made:
        assert b" 200 OK" in made.recv(1 << 16)


def test_several_at_once_are_answered_in_order(running: Running, found: list[Any]) -> None:
    bodies = [json.dumps(asked() | {"id": f"of {n}"}).encode() for n in range(5)]
    answer = exchanged(running, b"".join(map(request, bodies)))
    assert answer.count(b"HTTP/1.1 200 OK") == 5
    places = [answer.index(b'"of %d"' % n) for n in range(5)]
    assert places == sorted(places)
    assert found == [True], "the others wait for their turn"


def test_what_is_wrong_is_told_and_counted_once(running: Running, found: list[Any]) -> None:
    statistics = running.server.core.repository.find("model").model.statistics
    before = statistics.fail.count
    answer = exchanged(running, request(json.dumps(asked(shape=[3, 4])).encode()))
    assert b"HTTP/1.1 400" in answer
    assert b"expected a list of 12 elements" in answer
    assert found == [False]
    assert statistics.fail.count == before + 1


def test_what_is_answered_is_counted(running: Running, found: list[Any]) -> None:
    model = running.server.core.repository.find("model").model
    observed: list[Any] = []
    running.server.core.observers.append(lambda *given: observed.append(given))
    before = model.statistics.success.count
    exchanged(running, *[request(json.dumps(asked()).encode())] * 3)
    running.server.core.observers.clear()
    assert found == [True] * 3
    assert model.statistics.success.count == before + 3
    assert [spent.rows for _, spent, _ in observed] == [1, 1, 1]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_connection_that_is_to_be_closed_is(running: Running, version: str) -> None:
    whole = request(json.dumps(asked()).encode(), "Connection: close", version=version)
    assert b" 200 OK" in exchanged(running, whole)


def test_too_many_headers_are_refused(running: Running, found: list[Any]) -> None:
    lines = [f"X-{n}: 1" for n in range(300)]
    answer = exchanged(running, request(json.dumps(asked()).encode(), *lines))
    assert b" 200 OK" not in answer
    assert found == []


def test_a_request_passes_the_gate_first(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    path = double(tmp_path / "model.onnx")
    settings = Settings(str(path), port=0, grpc_port=None, access=Access(token_file=str(token)))
    with serving(settings) as guarded:
        warm(guarded, Authorization="Bearer secret")
        body = json.dumps(asked()).encode()
        assert b"HTTP/1.1 401" in exchanged(guarded, request(body))
        assert b"HTTP/1.1 401" in exchanged(guarded, request(body, "Authorization: Bearer x"))
        assert b" 200 OK" in exchanged(guarded, request(body, "Authorization: Bearer secret"))


def test_an_unloaded_model_is_not_found(running: Running) -> None:
    answer = exchanged(running, request(b"{}").replace(b"/model/", b"/other/"))
    assert b"HTTP/1.1 404" in answer
