"""Products with weights of 2, 4 and 8 bits, and rows of such tables."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
from arrays import MS, f32, ids, u8
from trial import Trial, chain, one

KINDS = {2: ml_dtypes.uint2, 4: ml_dtypes.uint4, 8: np.uint8}
ROUNDED = 2e-2
"""The tolerance of results whose activations are rounded to 8 bits."""


def _nbits(bits: int, rows: int, depth: int, level: int, zeros: bool) -> Trial:
    """Return a product with codes by columns, in blocks of 32."""
    blocks, columns = -(-depth // 32), 64
    inputs = [
        f32(rows, depth), u8(columns, blocks, 4 * bits), f32(columns, blocks),
        u8(columns, -(-blocks * bits // 8)) if zeros else None, None, f32(columns),
    ]  # fmt: skip
    made = one(
        f"MatMulNBits {bits} rows {rows} depth {depth} level {level}",
        "MatMulNBits", inputs, domain=MS, constants=range(1, 5),
        K=depth, N=columns, bits=bits, block_size=32, accuracy_level=level,
    )  # fmt: skip
    return replace(made, near=ROUNDED)


def _blocks(bits: int, rows: int, zeros: bool, level: int) -> Trial:
    """Return a product with codes by rows."""
    depth, columns, block = 128, 256, 32
    codes = ids(0, 1 << bits, depth, columns, dtype=np.uint8).astype(KINDS[bits])
    middle = np.full((depth // block, columns), 1 << bits - 1, np.uint8).astype(KINDS[bits])
    given = [codes, f32(depth // block, columns), *([middle] if zeros else [])]
    steps = [
        ("DequantizeLinear", given, {"axis": 0, "block_size": block}),
        ("MatMul", [f32(rows, depth), ...], {}),
    ]
    name = f"DequantizeLinear {bits} MatMul {rows} level {level}"
    made = chain(name, steps, fed=(len(given),), opset=25)
    settings = {"session.qdq_matmulnbits_accuracy_level": str(level)}
    return replace(made, settings=settings, near=ROUNDED)


def _mixture(bits: int, rows: int, fusion: int, zeros: bool) -> Trial:
    """Return two of four experts, whose codes are in blocks of 32."""
    experts, width, inner = 4, 64, 128
    outer = 2 * inner if fusion else inner
    given = []
    for columns, depth in ((outer, width), (width, inner)):
        codes = u8(experts, columns, depth * bits // 8)
        given += [codes, f32(experts, columns, depth // 32), f32(experts, columns)]
    points = [u8(experts, n, d // 32 * bits // 8) for n, d in ((outer, width), (width, inner))]
    inputs = [f32(rows, width), f32(rows, experts), *given]
    made = one(
        f"QMoE {bits} rows {rows} fusion {fusion}",
        "QMoE", [*inputs, None, None, None, *points] if zeros else inputs, domain=MS,
        constants=[*range(2, 10 if zeros else 8)], k=2,
        activation_type="swiglu" if fusion else "silu", swiglu_fusion=fusion,
        normalize_routing_weights=fusion % 2, expert_weight_bits=bits, block_size=32,
    )  # fmt: skip
    return replace(made, near=ROUNDED)


ROWS = [
    *(
        _mixture(bits, rows, fusion, zeros)
        for bits, rows, fusion, zeros in ((4, 1, 1, True), (4, 9, 2, False), (8, 7, 0, True))
    ),
    *(
        _nbits(bits, rows, depth, level, bits == 4)
        for bits in (2, 4, 8)
        for rows in (1, 40)
        for depth in (256, 80)
        for level in (0, 4)
    ),
    *(
        _blocks(bits, rows, bits == 4, level)
        for bits in (2, 4, 8)
        for rows in (1, 40)
        for level in (1, 4)
    ),
    *(
        one(
            f"GatherBlockQuantized {bits}",
            "GatherBlockQuantized",
            [u8(6, 96 * bits // 8), np.array([[3, 0, -1], [5, 5, 4]]), f32(6, 3)],
            domain=MS,
            constants=(0, 2),
            bits=bits,
            block_size=32,
        )
        for bits in (2, 4, 8)
    ),
]
