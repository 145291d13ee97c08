"""Models of gigabytes, and the private memory that loading takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from everywhere import (
    TP,
    everywhere,
    external,
    holder,
    save,
    varint,
    weight,
)
from onnx import helper, numpy_helper

from tenonnx.formats.load import load
from tenonnx.weights.registry import WeightRegistry

HUGE = 3 << 30


def test_external_data_over_two_gigabytes(registry: WeightRegistry, tmp_path: Path) -> None:
    data = tmp_path / "huge.data"
    with data.open("wb") as file:
        file.truncate(HUGE)
        file.seek(HUGE - 4)
        file.write(np.float32(2.5).tobytes())
    proto = external("huge.data", dims=[HUGE // 4])
    onnx.save(proto, tmp_path / "m.onnx")
    found = weight(load(tmp_path / "m.onnx", registry), "w").array
    assert found.shape == (HUGE // 4,)
    assert found[-1] == 2.5
    assert found[0] == 0


def test_a_model_over_two_gigabytes(registry: WeightRegistry, tmp_path: Path) -> None:
    graph = helper.make_graph([], "g", [], []).SerializeToString()
    head = TP(name="w", data_type=TP.FLOAT, dims=[HUGE // 4]).SerializeToString()
    raw = b"\x4a" + varint(HUGE)
    tensor = b"\x2a" + varint(len(head) + len(raw) + HUGE) + head + raw
    start = b"\x08\x0a\x3a" + varint(len(graph) + len(tensor) + HUGE) + graph + tensor
    path = tmp_path / "huge.onnx"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + HUGE)
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(2.5).tobytes())
    found = weight(load(path, registry), "w")
    assert found.offset == len(start)
    assert found.array.view("V4")[-1].tobytes() == np.float32(2.5).tobytes()


GROWTH = """
import sys, onnx, onnx_ir as ir
from pathlib import Path
from tenonnx.formats.load import load
from tenonnx.weights.registry import WeightRegistry
def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))
registry = WeightRegistry()
load(sys.argv[2], registry)
path = sys.argv[1]
source = {"path": lambda: path, "bytes": Path(path).read_bytes, "proto": lambda: onnx.load(path),
          "ir": lambda: ir.load(path)}[sys.argv[3]]()
before = anonymous()
models = [load(source, registry) for _ in range(3)]
print(anonymous() - before)
"""


@pytest.mark.parametrize(
    ("form", "where"),
    [
        ("path", "inline"),
        ("path", "external"),
        ("bytes", "inline"),
        ("proto", "inline"),
        ("ir", "external"),
    ],
)
def test_private_memory_that_three_sessions_take(tmp_path: Path, form: str, where: str) -> None:
    size = 32 << 20
    big = numpy_helper.from_array(np.ones((size // 4096, 1024), np.float32), "w")
    proto = holder(big)
    path = save(proto, tmp_path / "big.onnx", external=where == "external")
    warm = save(everywhere(), tmp_path / "small.onnx")
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(path), str(warm), form],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    grown = int(done.stdout) * 1024
    assert grown < 4 << 20
