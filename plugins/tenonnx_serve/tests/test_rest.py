"""REST: JSON and binary, with and without headers, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import compress

import numpy as np
import pytest

from servers import Running, double, serving
from tenonnx_serve import connections
from tenonnx_serve.bodies import MAX_INFLATED_BYTES, decompressed
from tenonnx_serve.errors import BadRequest, TooLarge
from tenonnx_serve.settings import Limits, Settings

ROW = [1.0, 2.0, 3.0, 4.0]
INFER = "/v2/models/double/infer"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = double(tmp_path_factory.mktemp("served") / "double.onnx")
    limits = Limits(body=1 << 20, elements=1 << 16)
    with serving(Settings(str(path), port=0, grpc_port=None, limits=limits)) as found:
        yield found


def asked(shape: Any = (1, 4), data: Any = ROW, **more: Any) -> dict[str, Any]:
    tensor = {"name": "x", "datatype": "FP32", "shape": shape, "data": data, **more}
    return {"inputs": [tensor]}


def test_health_and_metadata(running: Running) -> None:
    assert running.call("GET", "/v2/health/live")[:2] == (200, {"live": True})
    assert running.call("GET", "/v2/health/ready")[:2] == (200, {"ready": True})
    assert running.call("GET", "/v2/models/double/ready")[0] == 200
    status, found, _ = running.call("GET", "/v2/models/double/versions/1")
    assert status == 200
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert running.call("GET", "/v2")[1]["name"] == "tenonnx"


@pytest.mark.parametrize("kind", [None, "application/json", "application/octet-stream", "text/x"])
def test_json_whatever_the_content_type(running: Running, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    status, found, _ = running.call("POST", INFER, asked() | {"id": "7"}, headers)
    assert status == 200
    assert found["id"] == "7"
    assert found["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [1, 4], "data": [2.0, 4.0, 6.0, 8.0]}
    ]
    nested = running.call("POST", INFER, asked([2, 4], [ROW, ROW]), headers)[1]
    assert nested["outputs"][0]["data"] == [2.0, 4.0, 6.0, 8.0] * 2


def test_binary_both_ways_and_compressed(running: Running) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    said = asked([2, 4])
    del said["inputs"][0]["data"]
    said["inputs"][0]["parameters"] = {"binary_data_size": x.nbytes}
    said["parameters"] = {"binary_data_output": True}
    head = json.dumps(said).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    body = head + x.tobytes()
    for encoding, sent in (("", body), ("gzip", gzip.compress(body))):
        more = {"Content-Encoding": encoding} if encoding else {}
        status, found, got = running.call("POST", INFER, sent, headers | more)
        assert status == 200
        length = int(got["inference-header-content-length"])
        assert json.loads(found[:length])["outputs"][0]["parameters"] == {"binary_data_size": 32}
        assert np.array_equal(np.frombuffer(found[length:], np.float32).reshape(2, 4), x + x)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not JSON"),
        (b"[1]", 400, "Expected `object`"),
        (b"{" * 100_000, 400, "not JSON"),
        (asked([1, 5]), 400, "expected [-1, 4]"),
        (asked([1 << 40, 4]), 413, "at most 65536 elements"),
        (asked([1, 4], [1, 2, 3]), 400, "list of 4 elements"),
        (asked([1, 4], ["a", 2, 3, 4]), 400, "not FP32"),
        (asked([True, 4]), 400, "expected sizes"),
        (asked([-1, 4]), 400, "expected sizes"),
        (asked(name="z"), 400, "has no input 'z' (there are: x)"),
        (asked(datatype="FP64"), 400, "expected FP32"),
        (asked() | {"outputs": [{"name": "z"}]}, 400, "has no output 'z' (there are: y)"),
        (asked(parameters={"binary_data_size": 16}), 400, "binary_data_size"),
        ({"inputs": []}, 400, "missing"),
        (b" " * (1 << 21), 413, "1048576 bytes"),
    ],
)
def test_what_is_refused(running: Running, body: Any, status: int, words: str) -> None:
    found = running.call("POST", INFER, body)
    assert found[0] == status, found
    assert words in found[1]["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", INFER, 405),
        ("POST", "/v2/models/other/infer", 404),
        ("GET", "/v2/models/double/versions/2", 404),
        ("GET", "/v2/models/double/versions/..", 404),
        ("GET", "/v2/models/%2e%2e%2fdouble", 404),
    ],
)
def test_paths_that_are_not_there(running: Running, method: str, path: str, status: int) -> None:
    assert running.call(method, path)[0] == status


@pytest.mark.parametrize(("encoding", "packed"), [(b"gzip", gzip.compress), (b"deflate", compress)])
def test_a_body_is_inflated_in_pieces(encoding: bytes, packed: Callable[[bytes], bytes]) -> None:
    for data in (b"", bytes(3 * MAX_INFLATED_BYTES + 7), os.urandom(2 * MAX_INFLATED_BYTES)):
        assert decompressed(packed(data), encoding, len(data)) == data
        with pytest.raises(BadRequest):
            decompressed(packed(data)[:-5], encoding, len(data))
    with pytest.raises(TooLarge):
        decompressed(packed(data), encoding, len(data) - 1)


def test_an_answered_request_whose_rest_dribbles_is_given_up(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = b"POST /v2/models/none/infer HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Length: 9\r\n\r\n"

    def answer(client: socket.socket) -> bytes:
        found = b""
        while not found.endswith(b"}"):
            piece = client.recv(1 << 16)
            assert piece
            found += piece
        return found

    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.1)
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as client:
        client.sendall(head)
        assert b" 404 " in answer(client)
        assert client.recv(1) == b""
    monkeypatch.undo()
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as client:
        for _ in range(2):  # whose rest comes in time
            client.sendall(head)
            assert b" 404 " in answer(client)
            client.sendall(b" " * 9)


def test_json_is_inflated_to_its_own_limit(tmp_path: Path) -> None:
    """A small body that becomes a large one takes no memory for what will be refused."""
    path = double(tmp_path / "double.onnx")
    limits = Limits(json=2000)
    with serving(Settings(str(path), port=0, grpc_port=None, limits=limits)) as running:
        packed = gzip.compress(b" " * (1 << 20))
        sent = {"Content-Encoding": "gzip"}
        status, answer, _ = running.call("POST", "/v2/models/double/infer", packed, sent)
        assert (status, "larger than the limit of 2000 bytes" in str(answer)) == (413, True)
