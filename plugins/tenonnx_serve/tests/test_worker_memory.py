"""The memory of workers: weights once per host, whatever their number.

``--serve-all`` measures a model of 134 MB and eight workers; by default a small one and two.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("uvicorn")

from commanded import Served, served
from models import FLOAT, model, node, value
from test_workers import rollup

MIB = 1 << 20

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="memory is read from /proc"
)


def ask(server: Served, side: int, times: int) -> None:
    """Ask the model for products, over connections that go to all workers."""
    data = np.ones(side, np.float32).tobytes()
    tensor = {
        "name": "x",
        "datatype": "FP32",
        "shape": [1, side],
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    for _ in range(times):
        assert server.call("POST", "/v2/models/m/infer", head + data, headers)[0] == 200


def test_weights_are_there_once(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    whole = pytestconfig.getoption("--serve-all")
    side, workers = (5800, 8) if whole else (1450, 2)
    weights = side * side * 4
    matrix = np.random.default_rng(0).standard_normal((side, side), dtype=np.float32)
    proto = model(
        [node("MatMul", "x w", "y")],
        [value("x", FLOAT, ["n", side])],
        [value("y")],
        {"w": matrix},
    )
    path = tmp_path / "m" / "1" / "model.onnx"
    options = ("--workers", str(workers), "--grpc-port", "0", "--control")
    with served(tmp_path, *options) as server:
        server.call("GET", "/v2")
        empty = min(rollup(pid)["Anonymous"] for pid in server.pids())
        path.parent.mkdir(parents=True)
        onnx.save(proto, path)
        assert server.call("POST", "/v2/repository/models/m/load")[0] == 200
        ask(server, side, 12 * workers)
        found = [rollup(pid) for pid in server.pids()]
    private = [each["Anonymous"] for each in found]
    pss = sum(each["Pss"] for each in found)
    print(
        f"{weights / MIB:.0f} MiB of weights, {workers} workers: empty {empty / MIB:.1f}, "
        f"private {[round(each / MIB, 1) for each in private]}, PSS {pss / MIB:.0f} MiB"
    )
    assert max(private) - empty <= 15 * MIB
    assert pss <= weights + workers * 110 * MIB
