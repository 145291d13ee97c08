"""Convolution and pooling as XLA has them, in place of kernels that write into arrays."""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.windows import Windows, place

WINDOWS = OperatorTable()
Sizes = tuple[int, ...] | None


def padding(windows: Windows) -> list[tuple[int, int]]:
    """Returns what goes before and after each axis so that the windows are these; may be < 0."""
    sides = zip(windows.size, windows.kernel, windows.strides, windows.dilations, strict=True)
    ends = [
        (count - 1) * stride + (k - 1) * dilation + 1 - n - begin
        for (n, k, stride, dilation), count, begin in zip(
            sides, windows.output, windows.begins, strict=True
        )
    ]
    return list(zip(windows.begins, ends, strict=True))


def reduced(X: Array, windows: Windows, by: str, start: float) -> Array:
    """Returns each window of X (N, C, D1, ...) reduced, ``start`` being what padding holds."""
    lax: Any = importlib.import_module("jax.lax")
    return lax.reduce_window(
        X,
        lax.full((), start, X.dtype),
        getattr(lax, by),
        (1, 1, *windows.kernel),
        (1, 1, *windows.strides),
        [(0, 0), (0, 0), *padding(windows)],
        window_dilation=(1, 1, *windows.dilations),
    )


@WINDOWS.op("Conv")
def conv(
    xp: Namespace,
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sizes = None,
    group: int = 1,
    kernel_shape: Sizes = None,
    pads: Sizes = None,
    strides: Sizes = None,
) -> Array:
    """Correlates images (N, C, D1, ...) with filters (M, C / group, k1, ...)."""
    lax: Any = importlib.import_module("jax.lax")
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    windows = place(X.shape[2:], kernel_shape or W.shape[2:], auto_pad=auto_pad, **given)
    Y = lax.conv_general_dilated(
        xp.asarray(X),
        xp.asarray(W),
        windows.strides,
        padding(windows),
        rhs_dilation=windows.dilations,
        feature_group_count=group,
        precision=lax.Precision.HIGHEST,
    )
    return Y if B is None else Y + B.reshape(-1, *(1,) * (X.ndim - 2))


@WINDOWS.op("MaxPool")
@WINDOWS.op("MaxPool", since=8)
@WINDOWS.op("MaxPool", since=10)
def max_pool(
    xp: Namespace,
    X: Array,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sizes = None,
    pads: Sizes = None,
    storage_order: int = 0,
    strides: Sizes = None,
) -> Array:
    """Returns the greatest element of each window, and not the places where they were."""
    del storage_order
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    windows = place(X.shape[2:], kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, **given)
    whole = xp.issubdtype(X.dtype, xp.integer)
    return reduced(X, windows, "max", int(xp.iinfo(X.dtype).min) if whole else -math.inf)


@WINDOWS.op("AveragePool")
@WINDOWS.op("AveragePool", since=7)
@WINDOWS.op("AveragePool", since=10)
@WINDOWS.op("AveragePool", since=19)
def average_pool(
    xp: Namespace,
    X: Array,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sizes = None,
    pads: Sizes = None,
    strides: Sizes = None,
) -> Array:
    """Returns the mean of each window; padding counts as zeros with ``count_include_pad``."""
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    windows = place(X.shape[2:], kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, **given)
    axes = range(X.ndim - 2)
    counts = [windows.counts(axis, padding=bool(count_include_pad)) for axis in axes]
    divisor = np.maximum(functools.reduce(np.multiply.outer, counts), 1)
    return reduced(X, windows, "add", 0) / xp.asarray(divisor, X.dtype)
