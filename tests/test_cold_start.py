"""The imports of a process before its first answer, which take most of the time until it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tenonnx
import tenonnx_array
import tenonnx_cpu
from tenonnx_cpu.jit import library

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"

ANSWER = """
import json, sys
import numpy as np
before = set(sys.modules)
import tenonnx
session = tenonnx.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
session.run(None, {"image": np.zeros((1, 1, 8, 8), np.float32)})
print(json.dumps(sorted(set(sys.modules) - before)))
"""

SELDOM = {
    "asyncio", "difflib", "llvmlite", "ml_dtypes", "multiprocessing", "numba", "onnx", "onnx_ir",
    "onnxscript", "platform", "platformdirs", "rich", "sympy", "torch", "typer",
}  # fmt: skip
"""Modules that take milliseconds or much more, and that few second processes need."""

OWN = {"0": 86, "1": 80}
"""Modules of this project that a small network brings, without kernels and with them."""


@pytest.fixture(scope="module", params=OWN)
def jit(request: pytest.FixtureRequest) -> str:
    """``TENONNX_JIT``."""
    if request.param != "0" and library.find() is None:
        pytest.skip("there are no kernels here")
    return str(request.param)


@pytest.fixture(scope="module")
def processes(
    jit: str, kernels: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[set[str], set[str]]:
    """The imports of a first process, and of a second, which opens the plan that it kept."""
    environment = {**os.environ, "TENONNX_JIT": jit, "TENONNX_PLUGINS": ""}
    environment["TENONNX_KERNELS_DIR"] = kernels
    own = [str(Path(each.__file__).parents[1]) for each in (tenonnx, tenonnx_array, tenonnx_cpu)]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (*own, *sys.path)))
    environment["TENONNX_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-S", "-c", ANSWER, str(DIGITS)],
            env=environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told.append(set(json.loads(done.stdout)))
    return told[0], told[1]


@pytest.fixture(scope="module")
def imported(processes: tuple[set[str], set[str]]) -> set[str]:
    """The imports of a second process."""
    return processes[1]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs names the cache folder")
def test_a_second_process_needs_no_more_than_it_uses(imported: set[str]) -> None:
    assert not imported & SELDOM


def test_a_first_process_imports_onnx_ir_without_sympy(
    processes: tuple[set[str], set[str]],
) -> None:
    assert {"onnx", "onnx_ir"} <= processes[0]
    assert "sympy" not in processes[0]


def test_a_second_process_takes_few_modules(jit: str, imported: set[str]) -> None:
    own = [name for name in imported if name.partition(".")[0].startswith("tenonnx")]
    assert 50 < len(own) <= OWN[jit], sorted(own)
