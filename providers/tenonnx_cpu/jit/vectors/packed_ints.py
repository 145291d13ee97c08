"""Integers of 2, 4 and 8 bits as they are stored: several to a byte, the first in the low bits.

Everywhere here a code is unsigned: signed ones are turned into it by ``flip``, which inverts the
highest bit of every code in a byte and adds half the range to value and zero point alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.memory import load_byte
from tenonnx_cpu.jit.vectors.vector import I8, I32, Builder, Value

WIDTHS = (2, 4, 8)


def spread(b: Builder, bits: int, address: Value, flip: Value, lanes: int) -> Value:
    """Load adjacent codes as a vector of int32.

    Args:
        b: The builder.
        bits: Of a code.
        address: Of the byte that the first code begins.
        flip: An int8.
        lanes: How many codes; they fill whole bytes.
    """
    width = lanes * bits // 8
    raw = v.load(b, v.vector(I8, width), address)
    raw = b.xor(raw, v.splat(b, flip, width))
    parts = v.shuffle(b, raw, raw, [lane * bits // 8 for lane in range(lanes)])
    wide = b.zext(parts, v.vector(I32, lanes))
    if bits == 8:
        return wide
    shifts = v.vector(I32, lanes)([lane * bits % 8 for lane in range(lanes)])
    return b.and_(b.lshr(wide, shifts), v.constant(v.vector(I32, lanes), (1 << bits) - 1))


@helper
def code_at(address: Any, index: Any, bits: Any, flip: Any) -> Any:
    """Return one code of those that begin at an address."""
    byte = np.int64(load_byte(address + index * bits // 8)) ^ flip
    return (byte >> (index * bits % 8)) & ((1 << bits) - 1)
