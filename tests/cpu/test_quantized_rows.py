"""Rows of quantized tables on a kernel, against the dequantized table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, require_kernels, session

from models import INT64, node
from tenonnx_cpu.quantized.gather import GATHER

require_kernels()

ROWS, WIDTH = 6, 96


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [32, 64])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows(bits: int, block: int, zeros: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    blocks = -(-WIDTH // block)
    codes = random.integers(0, 1 << bits, (ROWS, WIDTH), np.uint8)
    scales = random.random((ROWS, blocks), np.float32)
    middle = random.integers(0, 1 << bits, (ROWS, blocks), np.uint8)
    weights: dict[str, Any] = {"codes": packed(codes, bits), "scales": scales}
    if zeros:
        weights["zeros"] = packed(middle, bits)
    places = np.array([[3, 0, -1], [5, 5, 6]])
    made = node(
        "GatherBlockQuantized", "codes i scales" + " zeros" * zeros, "y", domain="com.microsoft",
        bits=bits, block_size=block,
    )  # fmt: skip
    watch = Watch(GATHER, monkeypatch)
    given = session(
        [made],
        {"i": places},
        "y",
        weights,
        domains={"com.microsoft": 1},
        kinds={"i": INT64, "y": 1},
    )
    offset = np.repeat(middle, block, 1)[:, :WIDTH] if zeros else 1 << bits - 1
    table = (codes - np.float32(offset)) * np.repeat(scales, block, 1)[:, :WIDTH]
    expected = table[places % ROWS]
    expected[1, 2] = 0  # there is no row 6
    (y,) = given.run(None, {"i": places})
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    assert watch.calls == 1


def packed(codes: Any, bits: int) -> Any:
    each = 8 // bits
    whole = np.pad(codes, ((0, 0), (0, -codes.shape[1] % each)))
    lanes = whole.reshape(len(codes), -1, each) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(lanes, axis=2).astype(np.uint8)
