"""The memory of workers with a model of one matrix: private memory of each, and of all together."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bench.serve.contenders import Contender
from tenonnx_serve.memory import of_process

# Prints what a session of onnxruntime's adds to the private bytes of a process that has one.
THEIRS = """
import os, sys
import numpy as np, onnxruntime as ort
from tenonnx_serve.memory import of_process
def run(path, width):
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for _ in range(12):
        session.run(None, {"x": np.ones((1, width), np.float32)})
    return session, of_process(os.getpid())["private"]
_, before = run(sys.argv[1], 4)
kept, after = run(sys.argv[2], int(sys.argv[3]))
print(after - before)
"""

Start = Callable[..., AbstractContextManager[Contender]]


@dataclass(frozen=True)
class Held:
    """Bytes that a model takes.

    Attributes:
        weights: Of its weights.
        empty: Private ones of a worker without a model.
        private: Those of each worker with it.
        pss: All of all workers, what they share counted once.
        theirs: What it adds to each process of onnxruntime's.
    """

    weights: int
    empty: int
    private: list[int]
    pss: int
    theirs: int

    @property
    def more(self) -> int:
        """The greatest number of bytes that the model adds to a worker."""
        return max(self.private) - self.empty


def matrix(path: Path, side: int) -> Path:
    """Write a model of one square matrix."""
    draw = np.random.default_rng(0)
    weights = numpy_helper.from_array(draw.standard_normal((side, side), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, 1, ["n", side]) for name in "xy")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "matrix", [x], [y], [weights])
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def held(start: Start, folder: Path, small: Path, side: int, workers: int) -> Held:
    """Return what a number of workers hold.

    Args:
        start: Runs this package's server over a source, with options.
        folder: For the model.
        small: A model whose input has four columns.
        side: The matrix's.
        workers: How many.
    """
    path, empty = matrix(folder / "m.onnx", side), folder / "empty"
    empty.mkdir()
    with start(empty) as server:
        _get(server.ports["http"], "/v2")
        (before,) = (of_process(pid)["private"] for pid in _workers(server.pid))
    with start(path, "--workers", str(workers)) as server:
        for _ in range(12 * workers):
            _ask(server.ports["http"], side)
        found = [of_process(pid) for pid in _workers(server.pid)]
    private, pss = [one["private"] for one in found], sum(one["pss"] for one in found)
    command = [sys.executable, "-c", THEIRS, str(small), str(path), str(side)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Held(4 * side * side, before, private, pss, int(done.stdout))


def _workers(supervisor: int) -> list[int]:
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
    return [int(pid) for pid in children.read_text().split()]


def _get(port: int, path: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", path)
        connection.getresponse().read()


def _ask(port: int, side: int) -> None:
    """Ask for a product over a new connection, which any worker may get."""
    data = np.ones(side, np.float32).tobytes()
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, side]}
    head = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": len(data)}}]})
    headers = {"Inference-Header-Content-Length": str(len(head))}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", "/v2/models/m/infer", head.encode() + data, headers)
        answer = connection.getresponse()
        answer.read()
    if answer.status != 200:
        raise RuntimeError(f"a server answered with status {answer.status}")
