"""The operations on a convolution's sums: factors, summands, and activations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.elementwise.kernels.activate import activate
from tenonnx_cpu.elementwise.kernels.opcodes import CLIP, RELU
from tenonnx_cpu.jit.compiling import helper
from tenonnx_cpu.jit.vectors.views import floats


class Finish(NamedTuple):
    """``activate(sum * scale + shift + residual)``.

    Attributes:
        scale: Address of a factor for every channel.
        shift: Address of a summand, likewise.
        residual: Address of what is added, which is like the result; or 0.
        activation: One of ``elementwise.kernels.opcodes``.
        first: Its first parameter.
        second: Its second.
        low: The bound that it clips to from below; infinite if it does something else.
        high: The same from above.
        units: Address of 64 ones and 64 zeros.
    """

    scale: Any
    shift: Any
    residual: Any
    activation: Any
    first: Any
    second: Any
    low: Any
    high: Any
    units: Any


@helper
def finish_of(after: Any) -> Any:
    """Return what becomes of sums, of what ``AFTER`` says."""
    scale, shift, residual, activation, first, second, units = after
    low, high = np.float32(-np.inf), np.float32(np.inf)
    if activation == RELU:
        low = np.float32(0)
    elif activation == CLIP:
        low, high = first, second
    added = np.intp(residual.ctypes.data) if residual.size else np.intp(0)
    return Finish(
        np.intp(scale.ctypes.data), np.intp(shift.ctypes.data), added,
        activation, first, second, low, high, np.intp(units.ctypes.data),
    )  # fmt: skip


@helper
def activate_lines(start: Any, apart: Any, lines: Any, columns: Any, finish: Any) -> None:
    """Apply the activation to lines at an address, so far apart, if clipping has not done it."""
    if finish.activation > RELU and finish.activation != CLIP:
        for line in range(lines):
            row = floats(start + line * apart, columns)
            activate(finish.activation, row, row, finish.first, finish.second)
