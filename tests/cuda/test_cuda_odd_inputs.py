"""Inputs that the device's kernels must neither make up nor break on, compiled for the host."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernel_calls import BFLOAT16, FLOATS, chosen, close, draw, needs_compiler

from tenonnx_cuda.sources import LARGEST_GRID

LEFT = "the kernel was to take this"
"""The result of ``chosen`` where the array kernel computes."""


@needs_compiler
@pytest.mark.parametrize("keys", [40, 700])
@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_attention_hands_on_what_is_no_number(dtype: Any, keys: int) -> None:
    """Whichever kernel it is, and whether the keys are one share or several."""
    q, k, v = (draw(i, 1, 2, n, 32, dtype=dtype) for i, n in enumerate((5, keys, keys)))
    q[0, 1, 3, 7] = np.nan
    y = chosen("Attention", 23, outputs=3)(q, k, v)[0]
    lost = np.isnan(y).any(-1)
    assert lost.tolist() == [[[False] * 5, [False, False, False, True, False]]]
    v[0, 0, 11, 5] = np.nan
    y = chosen("Attention", 23, outputs=3)(q, k, v)[0]
    assert np.isnan(y[0, 0, :, 5]).all()
    assert np.isfinite(y[0, 0, :, :5]).all()


@needs_compiler
def test_a_mask_of_the_least_number_hides_no_key() -> None:
    q, k, v = (draw(i, 1, 1, n, 32, dtype=BFLOAT16) for i, n in enumerate((2, 40, 40)))
    mask = np.full((2, 40), float(ml_dtypes.finfo(BFLOAT16).min)).astype(BFLOAT16)
    mask[1] = -np.inf
    y = chosen("Attention", 23, outputs=3)(q, k, v, mask)[0]
    close(y[0, 0, 0], v[0, 0].astype(np.float64).mean(0), BFLOAT16)
    assert not y[0, 0, 1].any(), "of a query that sees nothing"


@needs_compiler
def test_keys_and_values_of_other_lengths_are_not_read() -> None:
    q, k, v = (draw(i, 2, 1, n, 32) for i, n in enumerate((3, 40, 39)))
    run = chosen("Attention", 23, outputs=3)
    for keys, values in ((k, v), (k[:1, :, :39], v[:1])):
        with pytest.raises(AssertionError, match=LEFT):
            run(q, keys, values)


@needs_compiler
def test_indices_out_of_range_touch_no_memory() -> None:
    x, angles = draw(0, 1, 1, 4, 8), draw(1, 5, 4)
    ids = np.array([[0, 5, -1, 4]])
    y = chosen("RotaryEmbedding", 23)(x, np.cos(angles), np.sin(angles), ids)
    np.testing.assert_array_equal(y[0, 0, 1:3], x[0, 0, 1:3])
    assert (y[0, 0, [0, 3]] != x[0, 0, [0, 3]]).all()
    data = np.zeros((3, 2), np.float32)
    y = chosen("ScatterND", 18, reduction="add")(
        data, np.array([[1], [3], [-4]]), np.ones((3, 2), np.float32)
    )
    np.testing.assert_array_equal(y, [[0, 0], [1, 1], [0, 0]])


def test_words_at_odd_addresses_are_left_to_the_array_kernel() -> None:
    """A file's bytes that the device reads in place lie anywhere."""
    bytes_ = np.zeros(8 * 16 + 1, np.uint8)
    at = next(i for i in range(2) if bytes_[i:].ctypes.data % 4)
    given = draw(0, 2, 32), bytes_[at:][: 8 * 16].reshape(8, 1, 16), draw(1, 8, 1)
    run = chosen("MatMulNBits", 1, domain="com.microsoft", K=32, N=8, bits=4, block_size=32)
    with pytest.raises(AssertionError, match=LEFT):
        run(*given)


def test_more_images_than_a_grid_has_are_left_to_the_array_kernel() -> None:
    x, w = np.zeros((LARGEST_GRID + 1, 1, 3), np.float32), np.zeros((1, 1, 2), np.float32)
    x, w = (np.repeat(a, 2, 1) for a in (x, w))
    with pytest.raises(AssertionError, match=LEFT):
        chosen("Conv", 11)(x, w)
