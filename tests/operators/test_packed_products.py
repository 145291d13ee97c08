"""Products with packed integers, against their formula in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tenonnx_array import packed_products
from tenonnx_array.packed import levels, unpack


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("count", [1, packed_products.FEW_ROWS, packed_products.FEW_ROWS + 1])
@pytest.mark.parametrize("offset", [False, True])
def test_a_product_is_its_formula(
    bits: int, count: int, offset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In strips of two rows and a rest; the last block is not full."""
    rows, blocks, width = 5, 3, 16 * bits // 8
    monkeypatch.setattr(packed_products, "DEQUANTIZED_TILE_BYTES", 2 * 4 * blocks * width)
    rng = np.random.default_rng(bits)
    packed = rng.integers(0, 256, (rows, blocks, width), np.uint8)
    scales = rng.uniform(0.5, 1, (rows, blocks)).astype(np.float32)
    offsets = rng.integers(-3, 3, (rows, blocks)).astype(np.float32) if offset else None
    x = rng.standard_normal((count, 45), np.float32)
    codes = packed[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & ((1 << bits) - 1)
    codes = codes.reshape(rows, blocks, 16)
    assert np.array_equal(unpack(np, packed, bits), codes)
    centered = codes - 2.0 ** (bits - 1)
    assert np.array_equal(levels(np, packed, bits), centered)
    weights = (centered - (0 if offsets is None else offsets[..., None])) * scales[..., None]
    expected = x @ weights.reshape(rows, -1)[:, :45].T
    found = packed_products.by_columns(np, x, packed, scales, offsets, bits)
    bound = np.abs(x) @ np.abs(weights).reshape(rows, -1)[:, :45].T
    assert found.dtype == np.float32
    assert (np.abs(found - expected) <= 2e-7 * 16 * (bound + 1)).all()
