"""Convolution and pooling by XLA, in place of kernels that write into arrays."""

from __future__ import annotations

import importlib
import math
from typing import Any

from tenonnx import Array, Namespace
from tenonnx_array.window_table import window_table
from tenonnx_array.windows import Windows


def convolve(
    xp: Namespace, X: Array, W: Array, B: Array | None, windows: Windows, group: int
) -> Array:
    """Correlate images with filters; float32 is not reduced to TF32."""
    lax: Any = importlib.import_module("jax.lax")
    Y = lax.conv_general_dilated(
        xp.asarray(X),
        xp.asarray(W),
        windows.strides,
        windows.around,
        rhs_dilation=windows.dilations,
        feature_group_count=group,
        precision=lax.Precision.HIGHEST,
    )
    return Y if B is None else Y + B.reshape(-1, *(1,) * (X.ndim - 2))


def reduced(X: Array, windows: Windows, by: str, start: float) -> Array:
    """Return each window of X (N, C, D1, ...) reduced; ``start`` is the value of padding."""
    lax: Any = importlib.import_module("jax.lax")
    return lax.reduce_window(
        X,
        lax.full((), start, X.dtype),
        getattr(lax, by),
        (1, 1, *windows.kernel),
        (1, 1, *windows.strides),
        ((0, 0), (0, 0), *windows.around),
        window_dilation=(1, 1, *windows.dilations),
    )


def greatest(xp: Namespace, X: Array, windows: Windows) -> Array:
    """Return the greatest element of each window."""
    whole = xp.issubdtype(X.dtype, xp.integer)
    return reduced(X, windows, "max", int(xp.iinfo(X.dtype).min) if whole else -math.inf)


def average(xp: Namespace, X: Array, windows: Windows, counts: Array) -> Array:
    """Return the mean of each window."""
    return reduced(X, windows, "add", 0) / xp.asarray(counts, X.dtype)


table = window_table(convolve, greatest, average)
