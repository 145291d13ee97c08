"""A node's way is short: how many modules run between a placed MatMul and its first answer.

Counted are modules of this project of which a function runs from the moment at which the session's
nodes are placed (``Plan`` is made of them) to the end of the first ``run``: fusing, selecting,
loading the kernel from the cache, generating code, running, capturing. Every model goes through
some of them: those that a model of one other node, with a weight of the same kind, goes through as
well are no part of the MatMul's way. That node is a Mod, which is placed on the same provider and
for which it has no kernel. Both are opened in processes of their own, by default options, with
kernels that an earlier process has compiled.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenonnx_cpu.jit import library

if library.find() is None:
    pytest.skip("there are no kernels here", allow_module_level=True)

CALLED = 21
"""Modules of which functions run for the MatMul alone: as many as a reader can keep in mind."""

RAN = 21
"""Modules that run for it alone, be it only as they are imported: tables are such. What is there
today, which is one more than there should be: it may only become less."""

TRACE = """
import json, sys
import numpy as np
import onnx
from onnx import numpy_helper

import tenonnx

body, shape = sys.argv[1], json.loads(sys.argv[2])
model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 22]> '
    "test (float[n, 64] x) => (float[n, m] y) { y = " + body + " }"
)
model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), "w"))
content, x = model.SerializeToString(), np.ones((3, 64), np.float32)
ran, is_placed = {}, False


def look(frame, event, argument):
    global is_placed
    if event != "call":
        return
    code, module = frame.f_code, frame.f_globals.get("__name__", "")
    is_placed = is_placed or (module, code.co_name) == ("tenonnx.planning.plan", "__init__")
    if is_placed and module.startswith("tenonnx"):
        # Bodies of modules and classes run as they are imported: both have no arguments.
        is_import = code.co_name == "<module>" or not code.co_flags & 2
        ran[module] = ran.get(module, False) or not is_import


sys.setprofile(look)
tenonnx.InferenceSession(content, providers=["cpu"]).run(None, {"x": x})
sys.setprofile(None)
print(json.dumps(ran))
"""


def traced(body: str, shape: list[int], kernels: str) -> dict[str, bool]:
    """The modules that run for a model of one node: whether more of them does than an import."""
    environment = {**os.environ, "TENONNX_JIT": "1", "TENONNX_PLUGINS": ""}
    environment["TENONNX_KERNELS_DIR"] = kernels
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    for _ in range(2):  # the first one compiles kernels, and keeps what it finds out
        done = subprocess.run(
            [sys.executable, "-c", TRACE, body, json.dumps(shape)],
            env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    found: dict[str, bool] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def of_any(kernels: str) -> dict[str, bool]:
    return traced("Mod<fmod: int = 1>(x, w)", [64], kernels)


@pytest.fixture(scope="module")
def of_matmul(kernels: str) -> dict[str, bool]:
    return traced("MatMul(x, w)", [64, 32], kernels)


def has_code(module: str) -> bool:
    """Return whether a module has more than a docstring, which packages have."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return len(ast.parse(Path(spec.origin).read_text()).body) > 1


def called(ran: dict[str, bool]) -> set[str]:
    return {name for name, more_than_imported in ran.items() if more_than_imported}


def test_few_modules_are_called(of_matmul: dict[str, bool], of_any: dict[str, bool]) -> None:
    way = sorted(called(of_matmul) - called(of_any))
    assert "tenonnx_cpu.matmul.matmul" in way
    assert len(called(of_any)) > CALLED, "both are traced"
    assert len(way) <= CALLED, "\n".join(way)


def test_few_modules_are_imported(of_matmul: dict[str, bool], of_any: dict[str, bool]) -> None:
    way = sorted(filter(has_code, of_matmul.keys() - of_any.keys()))
    assert len(way) <= RAN, "\n".join(way)
