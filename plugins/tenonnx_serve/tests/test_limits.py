"""Too much, too long, and clients that go away: others are served all the while."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from servers import Running, double, save, serving
from tenonnx_serve.settings import Limits, Settings

SPIN = """g (int64 n, float[k] x) => (float[k] y) {
    t = Constant<value = bool {1}>()
    y = Loop(n, t, x) <body = b (int64 i, bool c, float[k] v) => (bool d, float[k] w)
        { d = Identity(c)  w = Tanh(v) }>
}"""

FOREVER = 1 << 40
INFER = "/v2/models/spin/infer"


def spin(count: int, **parameters: Any) -> dict[str, Any]:
    inputs = [
        {"name": "n", "datatype": "INT64", "shape": [], "data": [count]},
        {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]},
    ]
    return {"inputs": inputs, "parameters": parameters}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("models")
    double(root / "double" / "1" / "model.onnx")
    save(root / "spin" / "1" / "model.onnx", SPIN)
    limits = Limits(waiting=3, seconds=20, body=1 << 20, body_seconds=0.5)
    with serving(Settings(str(root), port=0, grpc_port=0, runs=2, limits=limits)) as found:
        yield found


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def waiting(running: Running) -> int:
    return running.server.core.repository.find("spin").waiting


def busy(running: Running) -> int:
    return running.server.core.threads.busy


def cancelled(running: Running) -> int:
    return running.server.core.repository.find("spin").model.statistics.cancelled


def test_a_request_ends_when_its_time_is_over(running: Running) -> None:
    start = time.monotonic()
    status, found, _ = running.call("POST", INFER, spin(FOREVER, timeout=200_000))
    assert status == 504
    assert "0.2 s" in found["error"]
    assert time.monotonic() - start < 5
    until(lambda: busy(running) == 0)
    for wrong in (-1, "x", [1], True):
        assert running.call("POST", INFER, spin(1, timeout=wrong))[0] == 400
    assert running.call("POST", INFER, spin(3, timeout=0))[0] == 200


def test_one_too_many_is_told_to_come_again(running: Running) -> None:
    with ThreadPoolExecutor(3) as pool:
        running_ones = [
            pool.submit(running.call, "POST", INFER, spin(FOREVER, timeout=1_500_000))
            for _ in range(3)
        ]
        until(lambda: waiting(running) == 3)
        status, found, headers = running.call("POST", INFER, spin(1))
        assert status == 429
        assert headers["retry-after"] == "1"
        assert "3 requests" in found["error"]
        with (
            tritonclient.grpc.InferenceServerClient(running.grpc_address) as client,
            pytest.raises(InferenceServerException) as raised,
        ):
            client.infer("spin", grpc_inputs(1))
        assert raised.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        assert running.call("GET", "/v2/health/ready")[0] == 200
        assert {one.result()[0] for one in running_ones} == {504}
    until(lambda: busy(running) == 0)


def grpc_inputs(count: int) -> list[Any]:
    number = tritonclient.grpc.InferInput("n", [], "INT64")
    number.set_data_from_numpy(np.array(count))
    x = tritonclient.grpc.InferInput("x", [1], "FP32")
    x.set_data_from_numpy(np.ones(1, np.float32))
    return [number, x]


def test_a_client_of_http_that_goes_away_stops_its_run(running: Running) -> None:
    before = cancelled(running)
    body = json.dumps(spin(FOREVER)).encode()
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        until(lambda: busy(running) == 1)
    until(lambda: busy(running) == 0)
    assert cancelled(running) == before + 1


def test_a_client_of_grpc_that_goes_away_stops_its_run(running: Running) -> None:
    before = cancelled(running)
    with tritonclient.grpc.InferenceServerClient(running.grpc_address) as client:
        ended = threading.Event()
        call = client.async_infer("spin", grpc_inputs(FOREVER), lambda **_: ended.set())
        until(lambda: busy(running) == 1)
        call.cancel()
        until(lambda: busy(running) == 0)
        assert ended.wait(10)
        with pytest.raises(InferenceServerException, match="Deadline"):
            client.infer("spin", grpc_inputs(FOREVER), client_timeout=0.2)
        until(lambda: busy(running) == 0)
    assert cancelled(running) == before + 2


def test_a_stream_that_ends_stops_its_runs(running: Running) -> None:
    with tritonclient.grpc.InferenceServerClient(running.grpc_address) as client:
        client.start_stream(lambda **_: None)
        for _ in range(2):
            client.async_stream_infer("spin", grpc_inputs(FOREVER))
        until(lambda: busy(running) == 2)
        client.stop_stream(cancel_requests=True)
        until(lambda: busy(running) == 0)


def test_bodies_that_are_too_large_or_too_slow(running: Running) -> None:
    assert running.call("POST", INFER, b" " * ((1 << 20) + 1))[0] == 413
    chunked = b"".join(b"10000\r\n" + b" " * 0x10000 + b"\r\n" for _ in range(20))
    for body, expected in ((chunked + b"0\r\n\r\n", b" 413 "), (b"4\r\n{   \r\n", b" 408 ")):
        with socket.create_connection(("127.0.0.1", running.port)) as client:
            head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            client.sendall(head.encode() + body)
            assert expected in client.recv(1 << 16)


def test_a_grpc_message_that_is_too_large(running: Running) -> None:
    async def ask() -> Any:
        async with grpc.aio.insecure_channel(running.grpc_address) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            return await call(b"\0" * (2 << 20))

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        asyncio.run(ask())
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_server_that_stops_finishes_what_it_does(tmp_path: Path) -> None:
    save(tmp_path / "spin.onnx", SPIN)
    settings = Settings(str(tmp_path / "spin.onnx"), port=0, grpc_port=None)
    with ThreadPoolExecutor(1) as pool:
        with serving(settings) as running:
            assert running.call("POST", INFER, spin(1))[0] == 200
            asked = pool.submit(running.call, "POST", INFER, spin(100_000))
            until(lambda: busy(running) == 1)
        assert asked.result()[0] == 200
