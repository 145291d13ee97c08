"""The memory of a device: what sessions take of it and give back, and share with other processes.

Whatever else uses the device meanwhile disturbs what is measured here: these run alone.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cuda_device import MISSING, X, mlp, on_cpu, opened

import tenonnx
from tenonnx.weights.registry import WeightRegistry

PROVIDERS = ["CUDAExecutionProvider", "CPUExecutionProvider"]

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]


def free_bytes() -> int:
    import cupy

    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.cuda.Device().synchronize()
    return int(cupy.cuda.runtime.memGetInfo()[0])


def test_sessions_share_one_copy_of_the_weights(tmp_path: Path) -> None:
    path, size = mlp(tmp_path), 4 << 24
    opened(path).run(None, {"h0": X})
    before = free_bytes()
    registry = WeightRegistry()
    options = tenonnx.SessionOptions(weights=registry)
    sessions = [tenonnx.InferenceSession(path, options, PROVIDERS) for _ in range(20)]
    assert before - free_bytes() <= 1.05 * size
    assert registry.report().device == size
    expected = on_cpu(path)
    for session in sessions:
        np.testing.assert_allclose(session.run(None, {"h0": X})[0], expected, atol=2e-2)
    del sessions, session
    assert free_bytes() >= before - (8 << 20)


def test_500_sessions_leave_nothing(tmp_path: Path) -> None:
    path = mlp(tmp_path, 256, 2)
    feed = {"h0": np.ones((256, 256), np.float32)}

    def use() -> None:
        session = opened(path, {"enable_cuda_graph": True})
        for _ in range(3):
            session.run(None, feed)

    for _ in range(10):
        use()
    before = free_bytes()
    for _ in range(500):
        use()
    assert free_bytes() >= before - (4 << 20)


def test_mapped_weights_take_nothing_of_the_device(tmp_path: Path) -> None:
    path = mlp(tmp_path)
    expected = on_cpu(path)
    opened(path).run(None, {"h0": X})
    before = free_bytes()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        session = opened(path, {"weights": "mapped"})
    if said:
        pytest.skip(str(said[0].message))
    assert before - free_bytes() < 8 << 20
    np.testing.assert_allclose(session.run(None, {"h0": X})[0], expected, atol=2e-2)


def serve(path: Path, folder: Path, channel: Any) -> None:
    """Hold a session with shared weights until it is told to end."""
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    session = opened(path, {"weights": "shared"})
    channel.send(session.run(None, {"h0": X})[0])
    channel.recv()


def test_processes_share_weights_and_outlive_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = mlp(tmp_path)
    expected = on_cpu(path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    here, there = multiprocessing.get_context("spawn").Pipe()
    other = multiprocessing.get_context("spawn").Process(target=serve, args=(path, tmp_path, there))
    other.start()
    assert here.poll(120), "the other process did not run"
    np.testing.assert_allclose(here.recv(), expected, atol=2e-2)
    before = free_bytes()
    session = opened(path, {"weights": "shared"})
    np.testing.assert_allclose(session.run(None, {"h0": X})[0], expected, atol=2e-2)
    assert before - free_bytes() < 32 << 20, "the weights are there already"
    other.kill()
    other.join()
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"h0": X})[0], expected, atol=2e-2)
    again = opened(path, {"weights": "shared"})
    np.testing.assert_allclose(again.run(None, {"h0": X})[0], expected, atol=2e-2)
