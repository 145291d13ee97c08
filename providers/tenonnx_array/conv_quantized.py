"""Convolution of bytes: ConvInteger and QLinearConv.

The products go through BLAS in a float type whose sums are exact; numpy's in float32, of some
input channels at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.conv import add_bias, convolve, windows_of
from tenonnx_array.linalg import EXACT_COLUMNS, EXACT_IN_FLOAT32, exact_to_int32
from tenonnx_array.quant import round_to
from tenonnx_array.windows import Windows

table = OperatorTable()
op = table.op


@op(
    "ConvInteger",
    since=10,
    like=[windows_of],
    shapes=(
        "x: N C D ...; w: M C/group ...; len(x) == len(w); M % group == 0; "
        "not kernel_shape or tuple(kernel_shape) == w[2:]; x_zero_point: | 1; "
        "w_zero_point: | 1 | M"
    ),
)
def conv_integer(
    xp: Namespace,
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    group: int = 1,
    **attributes: Any,
) -> Array:
    """Return the convolution of ``x - x_zero_point`` with ``w - w_zero_point`` as int32.

    The padding stands for ``x_zero_point``. Sums beyond 32 bits wrap.

    Raises:
        ValueError: Channels, groups, kernel and attributes do not fit each other.
    """
    windows = windows_of(x, w, group=group, **attributes)
    taps, channels = math.prod(w.shape[2:]), w.shape[1]
    some = EXACT_COLUMNS // taps if xp is np and group == 1 and taps else 0
    if not 0 < some < channels:
        return exact_to_int32(xp, _sums(xp, x, w, x_zero_point, w_zero_point, windows, group))
    total = np.int32(0)
    for start in range(0, channels, some):
        a, b = (array[:, start : start + some] for array in (x, w))
        total += exact_to_int32(np, _sums(np, a, b, x_zero_point, w_zero_point, windows, group))
    return total


def _sums(
    xp: Namespace,
    x: Array,
    w: Array,
    x_zero_point: Array | None,
    w_zero_point: Array | None,
    windows: Windows,
    group: int,
) -> Array:
    """Return the convolution in the narrowest float type in which it is exact."""
    wide = xp.float32 if math.prod(w.shape[1:]) <= EXACT_IN_FLOAT32 else xp.float64
    x, w = x.astype(wide), w.astype(wide)
    if x_zero_point is not None:
        x -= x_zero_point.astype(wide).reshape(())
    if w_zero_point is not None:
        w -= by_output_channel(w_zero_point, w.ndim).astype(wide)
    return convolve(xp, x, w, windows, group)


def by_output_channel(value: Array, rank: int) -> Array:
    """Return a scalar, or a vector of one value per output channel shaped like the weights."""
    return value.reshape(()) if value.size == 1 else value.reshape(-1, *(1,) * (rank - 1))


@op(
    "QLinearConv",
    since=10,
    like=[conv_integer],
    shapes=(
        "x: N C D ...; w: M C/group ...; len(x) == len(w); M % group == 0; "
        "not kernel_shape or tuple(kernel_shape) == w[2:]; "
        "x_scale x_zero_point y_scale y_zero_point: | 1; w_scale w_zero_point: | 1 | M; "
        "B: M"
    ),
)
def qlinear_conv(
    xp: Namespace,
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    B: Array | None = None,
    **attributes: Any,
) -> Array:
    """Return the convolution of quantized tensors, quantized as ``y_scale`` and zero point say.

    B counts in units of ``x_scale * w_scale``.

    Raises:
        ValueError: Channels, groups, kernel, bias and attributes do not fit each other.
        TypeError: B is not int32.
    """
    if B is not None and B.dtype != xp.int32:
        raise TypeError(f"expected B of int32, found {B.dtype}")
    y = conv_integer(xp, x, w, x_zero_point, w_zero_point, **attributes)
    y = add_bias(y, B)
    x_scale, w_scale, y_scale = (s.astype(xp.float32) for s in (x_scale, w_scale, y_scale))
    scale = by_output_channel(x_scale.reshape(()) * w_scale / y_scale.reshape(()), y.ndim - 1)
    # In float32 throughout, as onnxruntime: halves in float32 round to even.
    y = y.astype(xp.float32) * scale
    return round_to(xp, y, y_zero_point.reshape(()), y_zero_point.dtype)
