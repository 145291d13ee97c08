"""The threads that share kernels' loops: every task once, whoever asks, also after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import require_kernels

import tenonnx
from models import model, node, value
from tenonnx.errors import InvalidArgument
from tenonnx_cpu import threading_config
from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.threads import memory as pool_memory
from tenonnx_cpu.norm.norms import SOFTMAX

require_kernels()

ROWS = 512


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The thread pool's memory, with three helpers whatever the machine has, after a fork, too."""
    opened = library.current()
    assert opened is not None
    memory = opened.pool
    before = memory[pool_memory.SIZE], memory[pool_memory.SPINS]
    monkeypatch.setattr(pool_memory, "available_cores", lambda: 4)
    monkeypatch.setattr(pool_memory.threading_config, "most_threads", lambda: 4)
    memory[pool_memory.SIZE] = 3
    yield memory
    memory[pool_memory.SIZE], memory[pool_memory.SPINS] = before


def softmax(x: np.ndarray, threads: int, grain: int = 8) -> np.ndarray:
    y = np.full_like(x, np.nan)
    assert SOFTMAX.run is not None
    SOFTMAX.run(*(each[..., None].view(np.uint8) for each in (x, y)), 4, 0, grain, threads)
    return y


def rows(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((ROWS, 64), dtype=np.float32)


@pytest.mark.parametrize("spins", [0, 100, 100_000])
def test_every_task_is_done_once_awake_or_asleep(memory: Any, spins: int) -> None:
    memory[pool_memory.SPINS] = spins
    for seed in range(60):
        x = rows(seed)
        if seed % 10 == 0:
            time.sleep(0.003)
        assert np.array_equal(softmax(x, 4), softmax(x, 1))
    assert memory[pool_memory.STARTED] == 3
    assert memory[pool_memory.WORD] == memory[pool_memory.LOCK] == 0


@pytest.mark.parametrize("spins", [0, 20_000])
def test_many_threads_may_ask_at_once(memory: Any, spins: int) -> None:
    memory[pool_memory.SPINS] = spins
    wrong = []

    def ask(seed: int) -> None:
        x = rows(seed)
        expected = softmax(x, 1)
        wrong.extend(i for i in range(150) if not np.array_equal(softmax(x, 4), expected))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert memory[pool_memory.WORD] == memory[pool_memory.LOCK] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_threads_of_its_own(memory: Any) -> None:
    x = rows(0)
    expected = softmax(x, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking a process with threads
        child = os.fork()
    if not child:
        same = memory[pool_memory.STARTED] == 0 and np.array_equal(softmax(x, 4), expected)
        os._exit(0 if same and memory[pool_memory.STARTED] == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(softmax(x, 4), expected)


def test_helpers_sleep_when_there_is_nothing_to_do(memory: Any) -> None:
    memory[pool_memory.SPINS] = 100
    softmax(rows(0), 4)
    end = time.monotonic() + 60
    while memory[pool_memory.SLEEPERS] < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.1)
    assert time.process_time() - before < 0.05


def test_processes_end_while_helpers_watch() -> None:
    code = (
        "import os, numpy as np; os.environ['TENONNX_JIT'] = '1'\n"
        "from tenonnx_cpu.norm.norms import SOFTMAX\n"
        "SOFTMAX.request()\n"
        "x = np.ones((512, 64, 1), np.float32).view(np.uint8)\n"
        "SOFTMAX.run(x, np.empty_like(x), 4, 0, 8, 4)\n"
    )
    for _ in range(3):
        subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)


def session(**config: str) -> tenonnx.InferenceSession:
    options = tenonnx.SessionOptions()
    for key, text in config.items():
        options.add_session_config_entry(f"session.intra_op.{key}", text)
    proto = model([node("Relu", "x", "y")], [value("x")], [value("y")])
    return tenonnx.InferenceSession(proto, options, providers=["cpu"])


def test_sessions_say_how_long_helpers_watch(memory: Any) -> None:
    try:
        session(allow_spinning="0")
        assert memory[pool_memory.SPINS] == 0
        session()
        assert memory[pool_memory.SPINS] == 0
        session(spin_duration_us="500")
        short = memory[pool_memory.SPINS]
        session(allow_spinning="1")
        assert 0 < short < memory[pool_memory.SPINS]
    finally:
        threading_config.set_patience(threading_config.SPIN_SECONDS)


def test_a_duration_must_be_a_number() -> None:
    with pytest.raises(InvalidArgument, match="spin_duration_us is 'long'"):
        session(spin_duration_us="long")
