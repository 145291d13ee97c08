"""Activations rounded to bytes, a group at a time, for products with quantized matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors.vmath import SHIFT, SHIFT_BITS, bits_of, exact, float_of

MAGNITUDE = np.int32(0x7FFFFFFF)


@exact
def nearest(x: Any, scale: Any) -> Any:
    """The integer nearest to a product of less than 2**22."""
    return np.int32(bits_of(x * scale + SHIFT) - SHIFT_BITS)


@helper
def round_groups(
    x: Any, group: Any, unit: Any, each: Any, shift: Any, scales: Any, sums: Any, out: Any
) -> None:
    """Rounds a row to bytes: ``x = scale * byte`` about, the greatest of a group being 127.

    Args:
        x: Adjacent elements, whole groups.
        group: Elements that have a scale in common.
        unit: The bytes are reordered for codes of which ``each`` share a byte: of ``unit`` bytes
            the first codes come first, then the second ones, and so on.
        each: Codes in a byte; 1 keeps the order.
        shift: What is added to every byte.
        scales: One for every group.
        sums: ``scale * sum(byte)`` for every group, without the shift.
        out: The bytes.
    """
    run = unit * each
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
        if each == 1:
            target = out[g * group : (g + 1) * group]
            for i in range(piece.size):
                value = nearest(piece[i], inverse)
                total += value
                target[i] = np.int8(value + shift)
        else:
            for i in range(piece.size):
                k = g * group + i
                value = nearest(piece[i], inverse)
                total += value
                out[k // run * run + k % each * unit + k % run // each] = np.int8(value + shift)
        scales[g] = scale
        sums[g] = scale * np.float32(total)
