"""Calls of kernels from Python: arguments are counted and told apart, and no reference is lost."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import require_kernels

pytest.importorskip("numba")

from tenonnx_cpu.jit.aot.single import load
from tenonnx_cpu.jit.code.building import Unlinkable, kernel_object
from tenonnx_cpu.jit.code.cpu import _asked, _own_features
from tenonnx_cpu.jit.compiling import Contract, In, Out, boolean, f32, helper, kernel, size
from tenonnx_cpu.norm.norms import SOFTMAX

require_kernels()


def floats(*shape: int) -> Any:
    return np.random.default_rng(shape[0]).standard_normal(shape, np.float32)


def softmax() -> Any:
    run = SOFTMAX.run
    assert type(run) is type(len)
    return run


def test_arguments_are_counted_and_told_apart() -> None:
    run, x = softmax(), floats(4, 8, 1).view(np.uint8)
    y = np.empty_like(x)
    with pytest.raises(TypeError, match=r"softmax\(\) takes 6 arguments"):
        run()
    with pytest.raises(TypeError, match=r"softmax\(\) takes 6 arguments"):
        run(x, y, 4, 0, 8, 1, 1)
    with pytest.raises(TypeError, match=r"softmax\(\): argument 1 must be an array$"):
        run(x, None, 4, 0, 8, 1)
    with pytest.raises(TypeError, match=r"softmax\(\): argument 0 must be of 3 dimensions"):
        run(x[0], y, 4, 0, 8, 1)
    with pytest.raises(TypeError, match="float"):
        run(x, y, 4, 0, 8.5, 1)
    with pytest.raises(OverflowError):
        run(x, y, 4, 0, 8, 1 << 70)


def test_numbers_may_be_numpys_and_arrays_of_a_kind_of_their_own(tmp_path: Path) -> None:
    run, x = softmax(), floats(4, 8, 1).view(np.uint8)
    kept = np.memmap(tmp_path / "y", np.uint8, "w+", shape=x.shape)
    y = np.empty_like(x)
    run(x, y, 4, 0, 8, 1)
    run(x, kept, 4, np.int32(0), np.uint8(8), np.int64(1))
    assert np.array_equal(kept, y)


def test_calls_leave_no_references() -> None:
    run, x = softmax(), floats(4, 8, 1).view(np.uint8)
    y, threads = np.empty_like(x), 1 << 40
    before = [sys.getrefcount(thing) for thing in (x, y, threads)]
    for _ in range(1000):
        run(x, y, 4, 0, 8, threads)
        with pytest.raises(TypeError):
            run(x, y, 4, 0, None, threads)
    assert [sys.getrefcount(thing) for thing in (x, y, threads)] == before


@kernel((In(f32, 2, "A"), (f32, In(f32, 1), boolean), size, Out(f32, 1)), Contract())
def add_row(x: Any, what: Any, row: Any, y: Any) -> None:
    factor, other, doubled = what
    for i in range(y.size):
        y[i] = factor * x[row, i] + other[i] * (2 if doubled else 1)


def test_strided_arrays_and_tuples_arrive_member_by_member() -> None:
    x, other, y = floats(48, 40).T, floats(48), np.zeros(48, np.float32)
    assert load(add_row)(x, 1.5, other, True, np.int64(7), y) is None
    np.testing.assert_allclose(y, np.float32(1.5) * x[7] + 2 * other, rtol=1e-6)


@kernel((In(f32, 1), Out(f32, 1)), Contract())
def add_first(x: Any, y: Any) -> None:
    room = np.empty(x.size, np.float32)
    for i in range(x.size):
        room[i] = x[0]
    for i in range(x.size):
        y[i] = x[i] + room[y.size - 1 - i]


def test_what_allocates_is_no_kernel() -> None:
    with pytest.raises(Unlinkable, match=r"it calls NRT_\w+: kernels allocate no memory"):
        kernel_object(add_first, "own.add_first")


@helper
def doubled(x: Any, y: Any) -> None:
    for i in range(x.size):
        y[i] = 2 * x[i]


@kernel((In(f32, 1), Out(f32, 1)), Contract())
def doubled_twice(x: Any, y: Any) -> None:
    if max(x.size, y.size) == x.size:
        doubled(x, y)
    doubled(y, y)


@kernel((In(f32, 1), Out(f32, 1)), Contract())
def halved(x: Any, y: Any) -> None:
    for i in range(max(x.size, y.size)):
        y[i] = x[i] / 2


def test_kernels_leave_numba_as_it_is_for_others_and_others_them() -> None:
    """Its definitions of functions that are Python's are of all who use them."""
    x, y = np.arange(5, dtype=np.float32), np.empty(5, np.float32)
    load(doubled_twice)(x, y)
    assert y.tolist() == [0, 4, 8, 12, 16]
    added = importlib.import_module("numba").njit(lambda a, b: max(a, b) + len((a, b)))
    assert added(3, 5) == 7
    load(halved)(y, y)
    assert y.tolist() == [0, 2, 4, 6, 8]


def test_processor_is_the_one_that_llvm_finds() -> None:
    """The system's description of the processor, read without LLVM, decides about kernels."""
    wanted = {"avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx2", "fma", "avxvnni"}
    assert _own_features() & wanted == _asked() & wanted
