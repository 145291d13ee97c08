"""The axes over which programs of elementwise operations loop, as a kernel plans them."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import floats, require_kernels

from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.elementwise.kernels.opcodes import BLOCK_ELEMENTS, MAX_AXES, MAX_INPUTS
from tenonnx_cpu.elementwise.kernels.operations import FLOAT32
from tenonnx_cpu.elementwise.program import Instruction, Program, ProgramCall, lay_out

require_kernels()

NDArray: TypeAlias = np.ndarray[Any, Any]


@st.composite
def arrays_that_broadcast(draw: Any) -> list[NDArray]:
    """Return some arrays with elements of their own, whose shapes broadcast."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    found = []
    for number in range(draw(st.integers(1, 3))):
        own = tuple(1 if draw(st.booleans()) and draw(st.booleans()) else n for n in shape)
        own = own[draw(st.integers(0, len(own) - 1)) :] if draw(st.booleans()) else own
        x = np.arange(math.prod(own), dtype=np.float32).reshape(own) + 1000 * number
        found.append(x)
    return found


def axes_of(*shapes: tuple[int, ...]) -> Any:
    """Return the lengths of a program's axes, and arrays' strides along each of them."""
    arrays = [np.empty(shape, np.float32) for shape in shapes]
    types = [FLOAT32] * (MAX_INPUTS + 1)
    layout = lay_out(arrays, 2, 0, types, 0, 1)
    if layout is None:
        return None
    lengths = layout.numbers[:MAX_AXES].tolist()
    steps = layout.strides[: len(arrays)].T.tolist()
    found = [(n, tuple(step)) for n, step in zip(lengths, steps, strict=True) if n > 1]
    return found, int(layout.numbers[MAX_AXES + 2])


def test_axes_are_merged() -> None:
    whole = BLOCK_ELEMENTS
    assert axes_of((4, 50, 60), (4, 50, 60)) == ([(12000, (1, 1))], whole)
    assert axes_of((4, 5, 600), (600,)) == ([(20, (600, 0)), (600, (1, 1))], whole)
    assert axes_of((2, 3, 600), (2, 1, 600)) == (
        [(2, (1800, 600)), (3, (600, 0)), (600, (1, 1))], whole,
    )  # fmt: skip
    assert axes_of((1000, 3), (1000, 1)) is None


def test_short_rows_are_one() -> None:
    """Of a bias, that is repeated, pieces are whole rows."""
    assert axes_of((20, 6), (6,)) == ([(120, (1, 6))], 1020)
    assert axes_of((5, 20, 6), (5, 1, 6)) == ([(5, (120, 6)), (120, (1, 6))], 1020)
    assert axes_of((20, 6), (20, 1)) == ([(20, (6, 1)), (6, (1, 0))], BLOCK_ELEMENTS)


def test_arrays_that_do_not_broadcast() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        axes_of((4, 5), (4,))


@given(arrays_that_broadcast())
def test_axes_are_where_elements_are(arrays: list[NDArray]) -> None:
    """Each element of a result has its operands, at any lengths that arrays have."""
    seen = np.broadcast_arrays(*arrays)
    found = lay_out(arrays, 1, 0, [FLOAT32] * (MAX_INPUTS + 1), 0, 1)
    assert found is not None
    assert found.result == seen[0].shape
    lengths = found.numbers[:MAX_AXES].tolist()
    for x, own, steps in zip(arrays, seen, found.strides, strict=False):
        index = np.zeros((), np.int64)
        for length, step in zip(lengths[:-1], steps[:-1].tolist(), strict=True):
            index = index[..., None] + np.arange(length) * step
        last, period = np.arange(lengths[-1]), int(steps[-1])
        index = index[..., None] + (last % period if period > 1 else last * period)
        where = (own.__array_interface__["data"][0] - x.__array_interface__["data"][0]) // 4
        flat = np.lib.stride_tricks.as_strided(x, (int(index.max()) + 1,), (4,))
        np.testing.assert_array_equal(flat[index + where].ravel(), own.ravel())


@pytest.mark.parametrize("shape", [(400, 3), (7, 33, 5), (2, 3, 700), (1, 40, 512)])
@pytest.mark.parametrize("threads", [1, 3])
def test_what_rows_have_in_common_is_repeated(shape: tuple[int, ...], threads: int) -> None:
    program = Program()
    x, y, z = program.array(), program.array(), program.array()
    program.add(Instruction(opcodes.ADD), (program.add(Instruction(opcodes.MUL), (x, y)), z))
    call = ProgramCall(program, lambda x, y, z: x * y + z, threads)
    a, b, c = floats(*shape), floats(shape[-1], seed=1), floats(*shape[:1], *[1] * (len(shape) - 1))
    np.testing.assert_allclose(call(a, b, c), a * b + c, rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_views_are_read_where_they_are(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(3, 70), (2, 3, 60), (64,), (1, 1), (5, 1), (200, 8)]))
    bases = [floats(*(2 * n + 1 for n in shape), seed=seed) for seed in range(2)]
    views = []
    for base in bases:
        steps = data.draw(st.tuples(*(st.sampled_from([1, 1, 2, -1]) for _ in shape)))
        views.append(base[tuple(slice(None, None, s) for s in steps)][tuple(map(slice, shape))])
    program = Program()
    x, y = program.array(), program.array()
    program.add(Instruction(opcodes.NEG), (program.add(Instruction(opcodes.MUL), (x, y)),))
    call = ProgramCall(program, lambda x, y: -(x * y), 1)
    np.testing.assert_array_equal(call(*views), -(views[0] * views[1]))
