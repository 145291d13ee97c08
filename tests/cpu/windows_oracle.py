"""Convolution and pooling in float64, window by window, from the specification."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def seen(x: Array, kernel: Any, strides: Any, dilations: Any, pads: Any, fill: float) -> Array:
    """Return the elements of each window: (N, C, output..., kernel...)."""
    rank = len(kernel)
    before, after = pads[:rank], pads[rank:]
    width = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    x = np.pad(x.astype(np.float64), width, constant_values=fill)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, extents, tuple(range(2, 2 + rank)))
    places = [slice(None, None, s) for s in strides]
    taps = [slice(None, None, d) for d in dilations]
    return windows[(slice(None), slice(None), *places, *taps)]


def convolve(
    x: Array,
    w: Array,
    strides: Any = None,
    dilations: Any = None,
    pads: Any = None,
    group: int = 1,
) -> Array:
    rank = x.ndim - 2
    windows = seen(
        x, w.shape[2:], strides or [1] * rank, dilations or [1] * rank, pads or [0] * 2 * rank, 0
    )
    n, m = x.shape[0], w.shape[0]
    parts = np.split(windows, group, axis=1)
    kernels = np.split(w.astype(np.float64), group)
    axes = [1, *range(2 + rank, 2 + 2 * rank)]
    results = [
        np.tensordot(part, kernel, (axes, range(1, 2 + rank)))
        for part, kernel in zip(parts, kernels, strict=True)
    ]
    y = np.concatenate(results, axis=-1)
    assert y.shape[0] == n
    assert y.shape[-1] == m
    return np.moveaxis(y, -1, 1)
