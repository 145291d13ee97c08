"""The namespace's corrections of cupy, against numpy's answers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import strict

from tenonnx_cuda.namespace import DeviceNamespace

xp: Any = DeviceNamespace(strict.xp)

SPECIAL = np.array([-np.inf, -3, -1, -0.0, 0.0, 1, 2.5, np.inf, np.nan])
FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS)
def test_remainders_are_numpys(dtype: Any) -> None:
    a, b = (np.ascontiguousarray(m).astype(dtype) for m in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        found = xp.remainder(strict.wrap(a), strict.wrap(b)).held
        expected = np.remainder(a.astype(np.float32), b.astype(np.float32)).astype(dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("other", [2.0, 3, np.float32([4, 5]), ml_dtypes.bfloat16(6)])
def test_choices_keep_their_type(other: Any) -> None:
    x, flags = np.array([1, 7], ml_dtypes.bfloat16), np.array([True, False])
    expected = np.where(flags, x, other)
    found = xp.where(strict.wrap(flags), strict.wrap(x), strict.wrap(other)).held
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


def test_distinct_bfloat16s_are_in_order() -> None:
    m = np.array([[2, -1], [np.inf, 2]], ml_dtypes.bfloat16)
    wide = np.unique(m.astype(np.float32), return_inverse=True, return_counts=True)
    found = xp.unique(strict.wrap(m), return_inverse=True, return_counts=True)
    assert found[0].held.dtype == m.dtype
    for actual, expected in zip(found, wide, strict=True):
        np.testing.assert_array_equal(actual.held.astype(expected.dtype), expected)
    np.testing.assert_array_equal(xp.unique(strict.wrap(m)).held.astype(np.float32), wide[0])


def test_bfloat16_is_cut_and_accumulated() -> None:
    m = np.arange(9).reshape(3, 3).astype(ml_dtypes.bfloat16)
    given = strict.wrap(m)
    for name in ("tril", "triu"):
        found = getattr(xp, name)(given, 1).held
        assert found.dtype == m.dtype
        np.testing.assert_array_equal(found, getattr(np, name)(m, 1))
    for name in ("cumsum", "cumprod"):
        found = getattr(xp, name)(given, 1).held
        assert found.dtype == m.dtype
        expected = getattr(np, name)(m.astype(np.float32), 1).astype(m.dtype)
        np.testing.assert_array_equal(found, expected)
