"""Copies by runs of bytes are numpy's, of elements of any size and any strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import require_kernels

from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.data_movement.copies import copied

require_kernels()

LENGTHS = st.sampled_from([1, 2, 3, 5, 8, 17, 33, 40])
STEPS = st.sampled_from([1, 1, 1, 2, -1, -3])


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    threads=st.sampled_from([1, 4]),
    dtype=st.sampled_from([np.uint8, np.float16, np.float32, np.int64, np.complex128]),
)
def test_any_strides(data: st.DataObject, threads: int, dtype: Any) -> None:
    shape = data.draw(st.lists(LENGTHS, min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    x = np.random.default_rng(0).integers(0, 200, shape).astype(dtype).transpose(order)
    x = x[tuple(slice(None, None, data.draw(STEPS)) for _ in shape)]
    if data.draw(st.booleans()):
        x = np.broadcast_to(x[..., None, :], (*x.shape[:-1], 3, x.shape[-1]))
    if data.draw(st.booleans()):
        x = np.broadcast_to(x[..., None], (*x.shape, 9))
    made = copied(x, threads)
    assert made is not None
    np.testing.assert_array_equal(done(made), x)


@pytest.mark.parametrize("rows", [1, 2, 300])
def test_long_runs_have_parts(rows: int) -> None:
    whole = np.arange(rows * 70001, dtype=np.uint8).reshape(rows, 70001)
    for x in (whole, whole[:, 1:], whole[:, :-7]):
        made = copied(x, 3)
        assert made is not None
        np.testing.assert_array_equal(done(made), x)
