"""A client that asks as fast as it is answered, several at a time; written to take little time."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

METHOD = "/inference.GRPCInferenceService/ModelInfer"
SIZE = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)


@dataclass(frozen=True)
class Load:
    """The clients' figures.

    Attributes:
        rate: Requests a second, all together.
        p50: Seconds that half of them took at most.
        p99: Seconds that 99 of 100 took at most.
    """

    rate: float
    p50: float
    p99: float


def ask(kind: str, port: int, clients: int, seconds: float, x: Any) -> Load:
    """Return what clients meet that send the same request one after the other.

    Args:
        kind: ``http`` or ``grpc``.
        port: Where.
        clients: How many at a time, each with a connection of its own.
        seconds: How long.
        x: The input.
    """
    make = {"http": _http, "grpc": _grpc}[kind]
    _await_answer(make, port, x)
    times: list[list[float]] = [[] for _ in range(clients)]
    failed: list[BaseException] = []
    end = time.perf_counter() + seconds

    def work(taken: list[float]) -> None:
        try:
            call, close = make(port, x)
            try:
                while (start := time.perf_counter()) < end:
                    call()
                    taken.append(time.perf_counter() - start)
            finally:
                close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(taken,)) for taken in times]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    taken = np.sort(np.concatenate([np.array(one) for one in times]))
    return Load(len(taken) / seconds, *(float(taken[int(len(taken) * q)]) for q in (0.5, 0.99)))


def _await_answer(make: Callable[..., Any], port: int, x: Any) -> None:
    """Wait for a first answer."""
    end = time.perf_counter() + 30
    while True:
        try:
            call, close = make(port, x)
            try:
                call()
                return
            finally:
                close()
        except (OSError, grpc.RpcError):
            if time.perf_counter() > end:
                raise
            time.sleep(0.2)


def _http(port: int, x: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    tensor = {"name": "x", "datatype": "FP32", "shape": x.shape}
    tensor["parameters"] = {"binary_data_size": x.nbytes}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    data = head + x.tobytes()
    lines = (
        "POST /v2/models/m/infer HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/octet-stream",
        f"Inference-Header-Content-Length: {len(head)}",
        f"Content-Length: {len(data)}",
    )
    request = "\r\n".join(lines).encode() + b"\r\n\r\n" + data
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call() -> None:
        sock.sendall(request)
        answer = sock.recv(1 << 16)
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += sock.recv(1 << 16)
        found = SIZE.search(answer)
        if b" 200 " not in answer[:20] or found is None:
            raise RuntimeError(f"answered {answer[:500]!r}")
        left = end + 4 + int(found[1]) - len(answer)
        while left > 0:
            left -= len(sock.recv(1 << 16))

    return call, sock.close


def _grpc(port: int, x: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    message = service_pb2.ModelInferRequest(model_name="m", raw_input_contents=[x.tobytes()])
    message.inputs.add(name="x", datatype="FP32", shape=x.shape)
    request = message.SerializeToString()
    # Channels of one process to one address share a connection unless they are told not to.
    channel = grpc.insecure_channel(
        f"127.0.0.1:{port}", options=(("grpc.use_local_subchannel_pool", 1),)
    )
    method = channel.unary_unary(METHOD)
    return lambda: method(request), channel.close
