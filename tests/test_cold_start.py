"""The imports of a process before its first answer, which take most of the time until it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tenonnx
import tenonnx_array
import tenonnx_cpu
from tenonnx_cpu.jit.code import code_object
from tenonnx_cpu.jit.runtime import has_numba

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"

ANSWER = """
import json, sys
import numpy as np
before = set(sys.modules)
import tenonnx
session = tenonnx.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
session.run(None, {"image": np.zeros((1, 1, 8, 8), np.float32)})
new = {name for name in set(sys.modules) - before}
print(json.dumps(sorted(n for n in new if type(sys.modules[n]).__name__ != "LazyModule")))
"""

SELDOM = {
    "asyncio", "concurrent.futures.thread", "copy", "dataclasses", "difflib", "email", "hashlib",
    "fnmatch", "importlib.metadata", "llvmlite", "logging", "multiprocessing", "numba", "onnx",
    "onnx_ir", "onnxscript", "pathlib", "platform", "platformdirs", "pluggy", "random", "rich",
    "shutil", "subprocess", "sympy", "tempfile", "torch", "typer", "urllib.parse", "uuid",
}  # fmt: skip
"""Modules that take a millisecond or much more, and that few sessions need."""

LATER = {
    "ml_dtypes",
    "onnx.checker",
    "onnx.helper",
    "onnx.serialization",
    "onnx_ir.passes",
    "sympy",
}
"""Modules that take as long, and that a first process does not need for a small network either."""

OWN = {"0": 76, "wait": 67}
"""Modules of this project that a small network brings, without kernels and with them: 0.15 ms each,
whatever is in them."""


@pytest.fixture(scope="module", params=OWN)
def jit(request: pytest.FixtureRequest) -> str:
    """``TENONNX_JIT``."""
    if request.param != "0" and not (has_numba() and code_object.SUPPORTED):
        pytest.skip("there are no kernels here")
    return str(request.param)


@pytest.fixture(scope="module")
def processes(
    jit: str, kernels: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[set[str], set[str]]:
    """The imports of a first process, and of a second, which opens the plan that it kept."""
    environment = {**os.environ, "TENONNX_JIT": jit, "TENONNX_PLUGINS": ""}
    environment["NUMBA_CACHE_DIR"] = kernels
    own = [str(Path(each.__file__).parents[1]) for each in (tenonnx, tenonnx_array, tenonnx_cpu)]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (*own, *sys.path)))
    environment["TENONNX_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    told = []
    for _ in range(2):
        done = subprocess.run(
            # -S: what finds an editable install imports pathlib.
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
def test_a_first_answer_needs_no_more_than_it_uses(imported: set[str]) -> None:
    assert not imported & SELDOM


def test_no_process_needs_more_types_of_elements(imported: set[str]) -> None:
    assert "ml_dtypes" not in imported


def test_a_first_process_needs_no_more_than_reads_and_compiles(
    jit: str, processes: tuple[set[str], set[str]]
) -> None:
    if "numba" in processes[0]:
        pytest.skip(f"kernels are compiled here, TENONNX_JIT={jit}")
    assert not processes[0] & LATER
    assert {"onnx.onnx_ml_pb2", "onnx_ir"} <= processes[0]


def test_a_first_answer_takes_few_modules(jit: str, imported: set[str]) -> None:
    own = [name for name in imported if name.partition(".")[0].startswith("tenonnx")]
    assert 50 < len(own) <= OWN[jit], sorted(own)


def test_frozen_dataclasses_are_records(imported: set[str]) -> None:
    """``tenonnx.records``: no methods are compiled for what is defined while a session starts."""
    found = [
        f"{name}.{key}"
        for name in imported
        if name.startswith("tenonnx")
        for key, value in vars(importlib.import_module(name)).items()
        if getattr(value, "__module__", "") == name
        and (about := getattr(value, "__dataclass_params__", None)) is not None
        and about.frozen
    ]
    assert not found


COLLECTIONS = """
import gc, sys
import numpy, tenonnx
tenonnx.InferenceSession
searches = []
gc.callbacks.append(lambda phase, facts: searches.append((phase, facts["generation"])))
sessions = [tenonnx.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])]
kept = [[] for _ in range(10)]
print(searches)
"""


def test_what_a_first_load_makes_is_not_searched_for_garbage() -> None:
    environment = {**os.environ, "TENONNX_JIT": "0", "TENONNX_CACHE": "0", "TENONNX_PLUGINS": ""}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", COLLECTIONS, str(DIGITS)],
        env=environment, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
