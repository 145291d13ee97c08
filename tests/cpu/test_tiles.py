"""Products in AMX's tiles: in threads, in forked processes and beside handlers of signals."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from running import session

from models import node
from tenonnx_cpu.int8.kernels import LEAST_WORDS, TILE_WORDS, tile_words
from tenonnx_cpu.int8.product import ENOUGH_WORDS, _fours
from tenonnx_cpu.jit.code.cpu import cpu


@pytest.fixture
def product() -> Any:
    """A product of bytes, and what it gives for them."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (300, 400), np.uint8), rng.integers(-128, 128, (400, 96), np.int8)
    kinds = {"a": TensorProto.UINT8, "b": TensorProto.INT8, "y": TensorProto.INT32}
    feeds = {"a": a, "b": b}
    opened = session([node("MatMulInteger", "a b", "y")], feeds, "y", kinds=kinds, threads=2)

    def run(times: int = 1) -> bool:
        made = [opened.run(None, feeds)[0] for _ in range(times)]
        return all(np.array_equal(y, a.astype(np.int32) @ b.astype(np.int32)) for y in made)

    assert run(3)
    return run


def test_threads_share_no_tiles(product: Any) -> None:
    right: list[bool] = []
    threads = [threading.Thread(target=lambda: right.append(product(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forked_processes_have_tiles(product: Any) -> None:
    child = os.fork()
    if not child:
        os._exit(0 if product(3) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no such timer")
def test_handlers_of_signals_compute_in_tiles_between_tasks(product: Any) -> None:
    right: list[bool] = []
    before = signal.signal(signal.SIGALRM, lambda *_: right.append(product()))
    try:
        for _ in range(20):  # a handler that a timer interrupts again and again never returns
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            assert product(10)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert right
    assert all(right)


@pytest.mark.parametrize("fours", range(1, 300))
def test_tiles_share_out_every_depth(fours: int) -> None:
    words = tile_words(fours)
    assert words == 0 or (LEAST_WORDS <= words <= TILE_WORDS and fours % words == 0)
    padded = _fours(4 * fours, 64)
    assert fours <= padded < fours + TILE_WORDS
    if cpu().amx and fours >= LEAST_WORDS:
        assert tile_words(padded) >= min(fours, ENOUGH_WORDS // 2)


@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_have_the_same_results_in_any_tile(bits: int, block: int) -> None:
    """Of a depth that is summed in two pieces, the second of which is added to the first."""
    depth, columns = 1024, 64
    rng = np.random.default_rng(0)
    shape = (columns, depth // block, block * bits // 8)
    weights = {
        "q": rng.integers(0, 256, shape, np.uint8),
        "s": rng.random(shape[:2], np.float32),
    }
    x = rng.standard_normal((50, depth), np.float32)
    sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": 4}
    nodes = [node("MatMulNBits", "x q s", "y", domain="com.microsoft", **sizes)]
    domains = {"": 21, "com.microsoft": 1}
    opened = session(nodes, {"x": x}, "y", weights, domains=domains)
    (whole,) = opened.run(None, {"x": x})
    for first, last in ((0, 5), (5, 21), (21, 38), (17, 50)):
        (y,) = opened.run(None, {"x": x[first:last]})
        assert np.array_equal(y, whole[first:last])
