"""Activations rounded to bytes, a group at a time, for products with quantized matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.packed_ints import WIDTHS
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I8, I64, Builder, Value
from tenonnx_cpu.jit.vectors.vmath import SHIFT, SHIFT_BITS, bits_of, exact, float_of

# Bytes of codes that a step of a panel has of a column, and that fill a vector.
QUAD, CHUNK = 4, 4 * LANES

MAGNITUDE = np.int32(0x7FFFFFFF)


@exact
def nearest(x: Any, scale: Any) -> Any:
    """The integer nearest to a product of less than 2**22."""
    return np.int32(bits_of(x * scale + SHIFT) - SHIFT_BITS)


@helper
def round_groups(x: Any, group: Any, shift: Any, scales: Any, sums: Any, out: Any) -> None:
    """Round a row to bytes: ``x = scale * byte`` about, the greatest of a group being 127.

    Args:
        x: Adjacent elements, whole groups.
        group: Elements that have a scale in common.
        shift: What is added to every byte.
        scales: One for every group.
        sums: ``scale * sum(byte)`` for every group, without the shift.
        out: The bytes.
    """
    for g in range(x.size // group):
        piece = x[g * group : (g + 1) * group]
        greatest = np.int32(0)
        for i in range(piece.size):
            # As integers, floats compare as their magnitudes do, and NaN is the greatest.
            size = np.int32(bits_of(piece[i]) & MAGNITUDE)
            greatest = size if size > greatest else greatest
        top = float_of(greatest)
        scale = top / np.float32(127)
        inverse = np.float32(127) / top if top > np.float32(1e-30) else np.float32(0)
        total = np.int32(0)
        target = out[g * group : (g + 1) * group]
        for i in range(piece.size):
            value = nearest(piece[i], inverse)
            total += value
            target[i] = np.int8(value + shift)
        scales[g] = scale
        sums[g] = scale * np.float32(total)


@shared("tenonnx_q_order", [(bits, unit) for bits in WIDTHS for unit in (QUAD, CHUNK)])
def order_bytes(b: Builder, bits: int, unit: int, /, row: Value, count: Value) -> None:
    """Reorder a row of bytes, whole runs, for codes that share bytes, ``unit`` of those a run.

    The bytes of a run that are for the first codes come first, then those for the second ones.
    """
    each = 8 // bits
    run = unit * each
    width = max(run, 16)  # a row has a multiple of 16 at least
    own = [byte * each + plane for plane in range(each) for byte in range(unit)]
    order = [start + place for start in range(0, width, run) for place in own]

    def step(index: Value, carried: list[Value]) -> list[Value]:
        place = b.add(row, b.mul(index, I64(width)))
        raw = v.load(b, v.vector(I8, width), place)
        v.store(b, v.shuffle(b, raw, raw, order), place)
        return []

    if each > 1:
        v.loop(b, b.udiv(count, I64(width)), [], step)
