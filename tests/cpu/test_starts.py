"""Processes that open models in many threads, which compile kernels there, and are killed.

``pytest tests/cpu/test_starts.py --starts 200`` starts as many; by default it is a few.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from models import FLOAT, model, node, value
from tenonnx_cpu.jit.code import code_object

pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(not code_object.SUPPORTED, reason="no code objects are made here")

THREADS = 8
PER_CACHE = 10
"""Starts after which the cache is empty again."""

CODE = """
import json, os, sys, threading, time
import numpy as np
import tenonnx
from tenonnx_cpu.jit import runtime
paths, threads, last = sys.argv[2:], int(sys.argv[1]), os.environ.get("LAST")
X = np.random.default_rng(0).standard_normal((1, 8, 16, 16), np.float32)
e = np.exp(X.astype(float) - X.max(-1, keepdims=True))
EXACT = [X.mean((2, 3), float, keepdims=True), e / e.sum(-1, keepdims=True)]
wrong = []
def work(number):
    try:
        for turn in range(3 if last else 10**6):
            place = (number + turn) % len(paths)
            session = tenonnx.InferenceSession(paths[place])
            for _ in range(20):
                y = session.run(None, {"x": X})[0]
                if not np.allclose(y, EXACT[place], rtol=1e-4, atol=1e-5): wrong.append(place)
    except Exception as error:
        wrong.append(repr(error))
all = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(threads)]
for each in all: each.start()
if last:
    for each in all: each.join()
    work(0)
    states = {str(k): [k.state, k.reason] for k in runtime.KERNELS if k.state}
    print(json.dumps([wrong, states]))
else:
    time.sleep(float(os.environ["ENDS_AFTER"]))
    print(json.dumps(wrong))
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    nodes = {"pool": node("GlobalAveragePool", "x", "y"), "softmax": node("Softmax", "x", "y")}
    for name, one in nodes.items():
        proto = model([one], [value("x", FLOAT, [1, 8, 16, 16])], [value("y")])
        onnx.save(proto, folder / f"{name}.onnx")
    return [str(folder / f"{name}.onnx") for name in nodes]


def start(paths: list[str], cache: Path, **variables: str) -> subprocess.Popen[str]:
    known = {"TENONNX_JIT": "compile", "NUMBA_CACHE_DIR": str(cache), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", CODE, str(THREADS), *paths],
        env=os.environ | known | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_no_kernel_is_lost_to_starts_that_are_killed(
    paths: list[str], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    starts = pytestconfig.getoption("--starts")
    chance = random.Random(starts)
    for first in range(0, starts, PER_CACHE):
        cache = tmp_path / str(first)
        for number in range(first, min(starts, first + PER_CACHE)):
            _kill_one(paths, cache, chance, number)
        output, errors = start(paths, cache, LAST="1").communicate(timeout=600)
        assert errors == ""
        wrong, states = json.loads(output)
        assert wrong == []
        assert {state for state, _ in states.values()} <= {"cached", "compiled"}, states
        assert len(states) == 4


def _kill_one(paths: list[str], cache: Path, chance: random.Random, number: int) -> None:
    """Start a process that ends in one of several ways, at some time."""
    seconds = chance.uniform(0, 6)
    end = chance.choice([None, signal.SIGKILL, signal.SIGTERM])
    process = start(paths, cache, ENDS_AFTER=str(60 if end else seconds))
    if end is not None:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(end)
    output, errors = process.communicate(timeout=120)
    assert errors == "", number
    expected: Any = 0 if end is None else -end
    assert process.returncode == expected, number
    if end is None:
        assert json.loads(output) == []
