"""Shares of scratch memory: every worker begins at a cache line, and nobody allocates otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tenonnx_cpu
from tenonnx_cpu.jit.scratch import ALIGNMENT, pieces, share_of, worker_floats, worker_shares


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 63, 64, 65, 1000])
def test_a_share_is_in_whole_lines(count: int, dtype: type) -> None:
    share = share_of(count, dtype)
    assert 0 <= share - count < ALIGNMENT // np.dtype(dtype).itemsize
    for workers in (1, 2, 3, 4):
        _, memory = pieces(((3,), np.int32), worker_shares(share, workers, dtype))
        places = [memory[worker * share :].ctypes.data for worker in range(workers)]
        assert not any(place % ALIGNMENT for place in places)
        assert memory.size == workers * share


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("share", [15, 17, 20, 36])
def test_a_share_that_is_not_is_refused_for_one_worker_too(share: int, workers: int) -> None:
    with pytest.raises(ValueError, match=rf"expected a share of {share_of(share)} .* {share}$"):
        worker_floats(share, workers)


MEMORY_OF_WORKERS = re.compile(r"\b(?:floats|scratch)\([^()]*\b(?:threads|team|workers)\b")

OTHERWISE = {"conv/resizing.py": "two lines of the result, which workers slice and LLVM reads"}
"""Files whose workers' memory is not aligned, by the reason."""


def test_nobody_allocates_for_workers_otherwise() -> None:
    root = Path(tenonnx_cpu.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if MEMORY_OF_WORKERS.search(path.read_text())
    }
    assert found == set(OTHERWISE)
