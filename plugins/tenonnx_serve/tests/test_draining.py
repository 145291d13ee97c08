"""Connections, bodies and memory when clients or the server do not behave."""

from __future__ import annotations

import dataclasses
import gc
import http.client
import json
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commanded import served
from servers import Running, double, save, serving
from supervised import wait_for
from tenonnx_serve.settings import MIB, Limits, Settings

BODY = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
).encode()
REQUEST = b"POST /v2/models/double/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
WHOLE = REQUEST % len(BODY) + BODY


def settings(tmp_path: Path, **limits: Any) -> Settings:
    path = double(tmp_path / "double.onnx")
    return Settings(
        str(path), port=0, grpc_port=None, limits=dataclasses.replace(Limits(), **limits)
    )


class Client(threading.Thread):
    """Sends one request after the other until the server tells it to close."""

    def __init__(self, port: int, pause: float) -> None:
        super().__init__()
        self.port, self.pause = port, pause
        self.answered, self.end = 0, ""

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        while not self.end:
            try:
                connection.request("POST", "/v2/models/double/infer", BODY)
                answer = connection.getresponse()
                answer.read()
            except OSError as error:
                self.end = f"lost: {error!r}"
                break
            if answer.status != 200:
                self.end = f"lost: {answer.status}"
            elif answer.getheader("connection") == "close":
                self.end = "told"
            self.answered += 1
            time.sleep(self.pause)
        connection.close()


@pytest.mark.parametrize("pause", [0, 0.05])
def test_a_stop_loses_no_request(tmp_path: Path, pause: float) -> None:
    with serving(settings(tmp_path)) as running:
        clients = [Client(running.port, pause) for _ in range(8)]
        for client in clients:
            client.start()
        time.sleep(0.3)
    for client in clients:
        client.join()
    assert {client.end for client in clients} == {"told"}
    assert all(client.answered for client in clients)


def answered(running: Running, data: bytes, *, shut: bool = False) -> bytes:
    """Return everything that the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as client:
        client.sendall(data)
        if shut:
            client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_a_client_that_sends_no_more_gets_its_answer(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as running:
        for _ in range(5):  # the first ones in a thread, then in the event loop
            found = answered(running, WHOLE, shut=True)
            assert found.startswith(b"HTTP/1.1 200 OK")
            assert b'"data":[2.0,4.0,6.0,8.0]' in found
        assert answered(running, WHOLE[:-5], shut=True) == b""
        assert answered(running, WHOLE[:20], shut=True) == b""


def test_a_connection_is_closed_with_an_answer_to_half_a_request(tmp_path: Path) -> None:
    with serving(settings(tmp_path, body_seconds=0.3, body=MIB)) as running:
        slow = answered(running, REQUEST % 1000 + b"{")
        assert slow.startswith(b"HTTP/1.1 408")
        large = answered(running, REQUEST % (2 * MIB) + b"{")
        assert large.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in slow
        assert b"connection: close" in large


def test_a_connection_too_many_is_refused(tmp_path: Path) -> None:
    with serving(settings(tmp_path, connections=3)) as running:
        held = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(3)]
        for each in held:
            each.sendall(WHOLE)
            assert each.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert answered(running, b"").startswith(b"HTTP/1.1 503")
        held.pop().close()
        time.sleep(0.1)
        assert running.call("POST", "/v2/models/double/infer", BODY)[0] == 200
        for each in held:
            each.close()


def test_unfinished_bodies_have_room_in_all(tmp_path: Path) -> None:
    with serving(settings(tmp_path, bodies=MIB)) as running:
        head, half = REQUEST % MIB, bytes(MIB // 2)
        with socket.create_connection(("127.0.0.1", running.port)) as first:
            first.sendall(head + half)
            time.sleep(0.2)
            refused = answered(running, head + half + bytes(1000))
            assert refused.startswith(b"HTTP/1.1 503")
        time.sleep(0.1)
        assert running.call("POST", "/v2/models/double/infer", BODY)[0] == 200


def test_json_has_a_limit_of_its_own(tmp_path: Path) -> None:
    with serving(settings(tmp_path, json=MIB)) as running:
        large = b'{"id": "' + b"a" * MIB + b'"}'
        status, found, _ = running.call("POST", "/v2/models/double/infer", large)
        assert (status, "binary data" in found["error"]) == (413, True)
        head = json.dumps(
            {
                "inputs": [
                    {
                        "name": "x",
                        "datatype": "FP32",
                        "shape": [1 << 17, 4],
                        "parameters": {"binary_data_size": 2 * MIB},
                    }
                ],
                "parameters": {"binary_data_output": True},
            }
        ).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        sent = head + bytes(2 * MIB)
        assert running.call("POST", "/v2/models/double/infer", sent, headers)[0] == 200


def test_a_failed_request_leaves_no_memory(tmp_path: Path) -> None:
    wrong = np.zeros(2 * MIB, np.float32).tobytes()  # fails where a thread decodes it
    head = BODY.replace(b'"data": [1, 2, 3, 4]', b'"parameters": {"binary_data_size": %d}')
    head %= len(wrong)
    headers = {"Inference-Header-Content-Length": str(len(head))}
    gc.disable()
    try:
        with serving(settings(tmp_path)) as running:

            def fail() -> None:
                sent = head + wrong
                status, _, _ = running.call("POST", "/v2/models/double/infer", sent, headers)
                assert status == 400

            for _ in range(3):
                fail()
            before = anonymous()
            for _ in range(20):
                fail()
            assert anonymous() - before < 4 * len(wrong)
    finally:
        gc.enable()


def anonymous() -> int:
    """Return this process's anonymous memory in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) << 10


def test_what_is_in_flight_is_answered_at_the_end(tmp_path: Path) -> None:
    """SIGTERM in the middle of requests: none of those that were sent is lost."""
    rows = "float[n,2000]"
    body = " ".join(f"t{i + 1} = Sin(t{i})" for i in range(20))
    text = f"g ({rows} t0) => ({rows} y) {{ {body} y = Neg(t20) }}"
    path = save(tmp_path / "slow.onnx", text)
    data = bytes(2000 * 2000 * 4)
    tensor = {
        "name": "t0",
        "datatype": "FP32",
        "shape": [2000, 2000],
        "parameters": {"binary_data_size": len(data)},
    }
    asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = json.dumps(asked).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    with served(path, "--workers", "1") as server:
        with ThreadPoolExecutor(2) as pool:
            asking = [
                pool.submit(server.call, "POST", "/v2/models/slow/infer", head + data, headers, 60)
                for _ in range(2)
            ]
            sent = re.compile(rb'^tenonnx_requests_in_flight{worker="0"} 2', re.MULTILINE)
            wait_for(
                lambda: (
                    sent.search(server.call("GET", "/metrics")[1])
                    or any(each.done() for each in asking)
                )
            )
            server.process.send_signal(signal.SIGTERM)
            assert {each.result()[0] for each in asking} == {200}
        assert server.process.wait(30) == 0
