"""What is done to a block of a convolution on its way from the cache to the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.activation import CLIP, HARD_SIGMOID, HARD_SWISH, RELU
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.conv.rows import finish_row
from tenonnx_cpu.jit.products.epilogue import activate, clip


@helper
def finish_block(
    c: Any, c_row: Any, y: Any, place: Any, image: Any, rows: Any, whole: Any, columns: Any,
    channel: Any, extras: Any,
) -> None:  # fmt: skip
    """Writes ``activate(C * scale + shift + residual)`` to where it belongs.

    Args:
        c: Address of the block, whose rows are channels, and bytes from row to row.
        c_row: Likewise.
        y: The result, flat.
        place: Of the block's first element in it.
        image: Floats from channel to channel of the result.
        rows: How many channels.
        whole: How many elements of each are in the result, clipped, already.
        columns: How many elements of each.
        channel: The first channel's number among scales and shifts.
        extras: Scale and shift per channel; the residual, like the result, or empty; the
            activation and its parameters; 64 ones and 64 zeros.
    """
    scale, shift, residual, activation, first, second, _ = extras
    low, high = bounds(activation, first, second)
    other = activation > RELU and activation != CLIP
    for row in range(rows):
        start = place + row * image
        if whole < columns:
            target = y.ctypes.data + 4 * (start + whole)
            added = residual.ctypes.data + 4 * (start + whole) if residual.size else 0
            finish_row(
                c + row * c_row + 4 * whole, target, added, columns - whole,
                scale[channel + row], shift[channel + row], low, high,
            )  # fmt: skip
        if other:
            apply(y[start : start + columns], activation, first, second)


@helper
def apply(row: Any, activation: Any, first: Any, second: Any) -> None:
    """Applies an activation that is not done by clipping to a row, in place."""
    if activation == HARD_SIGMOID:
        for i in range(row.size):
            row[i] = clip(row[i] * first + second, np.float32(0), np.float32(1))
    elif activation == HARD_SWISH:
        for i in range(row.size):
            gate = row[i] * np.float32(1 / 6) + np.float32(0.5)
            row[i] *= clip(gate, np.float32(0), np.float32(1))
    else:
        activate(row, activation, first, second)


@helper
def bounds(activation: Any, first: Any, second: Any) -> Any:
    """Returns the bounds that an activation clips to; infinite if it does something else."""
    if activation == RELU:
        return np.float32(0), np.float32(np.inf)
    if activation == CLIP:
        return first, second
    return np.float32(-np.inf), np.float32(np.inf)
