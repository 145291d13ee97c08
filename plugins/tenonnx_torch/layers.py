"""Convolution, pooling, normalisation and reduction by torch's functions; ``xp`` is torch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tenonnx import Array, Namespace
from tenonnx_array.windows import Windows, place
from tenonnx_torch.kernels import KERNELS

REAL_ONLY = frozenset(
    ("AveragePool", "Conv", "ConvTranspose", "GlobalAveragePool", "MatMul", "MaxPool", "Mean")
)
"""Operators that torch computes for floats only."""

Sizes = tuple[int, ...] | None
op = KERNELS.op


def padded(xp: Namespace, X: Array, windows: Windows, value: float = 0.0) -> Array:
    """Returns X (N, C, D1, ...) with all that the windows see around it, and no more."""
    pads: list[int] = []
    for axis, count in enumerate(windows.output):
        span = (windows.kernel[axis] - 1) * windows.dilations[axis] + 1
        end = (count - 1) * windows.strides[axis] + span - windows.size[axis]
        pads = [windows.begins[axis], end - windows.begins[axis], *pads]
    return xp.nn.functional.pad(X, pads, value=value) if any(pads) else X


@op("Conv")
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
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    sizes = tuple(X.shape[2:]), tuple(kernel_shape or W.shape[2:])
    windows = place(*sizes, auto_pad=auto_pad, **given)
    function = getattr(xp.nn.functional, f"conv{X.ndim - 2}d")
    even = not auto_pad.startswith("SAME") and windows.begins == windows.ends
    X, around = (X, windows.begins) if even else (padded(xp, X, windows), 0)
    return function(X, W, B, windows.strides, around, windows.dilations, group)


@op("MaxPool")
@op("MaxPool", since=8)
@op("MaxPool", since=10)
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
    size = tuple(X.shape[2:])
    windows = place(size, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, **given)
    function = getattr(xp.nn.functional, f"max_pool{X.ndim - 2}d")
    X = padded(xp, X, windows, -math.inf)
    return function(X, kernel_shape, windows.strides, 0, windows.dilations)


@op("AveragePool")
@op("AveragePool", since=7)
@op("AveragePool", since=10)
@op("AveragePool", since=19)
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
    size = tuple(X.shape[2:])
    windows = place(size, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, **given)
    divisor = np.ones((), np.int64)
    for axis in range(len(size)):
        counts = windows.counts(axis, padding=bool(count_include_pad))
        divisor = np.multiply.outer(divisor, counts)
    channels = X.reshape(-1, 1, *size)
    function = getattr(xp.nn.functional, f"conv{len(size)}d")
    ones = xp.ones((1, 1, *kernel_shape), dtype=X.dtype, device=X.device)
    fits = {"stride": windows.strides, "dilation": windows.dilations}
    sums = function(padded(xp, channels, windows), ones, **fits)
    scale = xp.as_tensor(np.maximum(divisor, 1), dtype=X.dtype, device=X.device)
    return (sums / scale).reshape(*X.shape[:2], *windows.output)


@op("BatchNormalization", since=9)
@op("BatchNormalization", since=14)
def batch_normalization(
    xp: Namespace,
    X: Array,
    scale: Array,
    B: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> Array:
    """Normalises channels of X (N, C, ...) by the statistics that are given."""
    del momentum
    return xp.nn.functional.batch_norm(X, mean, var, scale, B, eps=epsilon)


@op("InstanceNormalization", since=6)
def instance_normalization(
    xp: Namespace, X: Array, scale: Array, B: Array, *, epsilon: float = 1e-5
) -> Array:
    """Normalises each channel of each image."""
    return xp.nn.functional.instance_norm(X, weight=scale, bias=B, eps=epsilon)


@op("LayerNormalization", since=17)
def layer_normalization(
    xp: Namespace,
    X: Array,
    scale: Array,
    B: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Array:
    """Normalises over all axes from ``axis`` on."""
    del stash_type
    shape = X.shape[axis % X.ndim :]
    scale = scale.expand(shape)
    return xp.nn.functional.layer_norm(
        X, shape, scale, None if B is None else B.expand(shape), epsilon
    )


def _reduction(function: Callable[..., Array]) -> Callable[..., Array]:
    """Returns the kernel of a reduction; ``function`` takes torch, an array and its axes."""

    def reduce(
        xp: Namespace,
        x: Array,
        axes: Array | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array:
        given = [] if axes is None else [int(axis) % x.ndim for axis in axes]
        if not given and noop_with_empty_axes:
            return function(xp, x[None], (0,))[0].to(x.dtype)
        dims = tuple(given or range(x.ndim))
        if not dims:
            return function(xp, x[None], (0,))[0].to(x.dtype)
        result = function(xp, x, dims).to(x.dtype)
        return (
            result
            if keepdims
            else result.reshape([n for i, n in enumerate(x.shape) if i not in dims])
        )

    return reduce


def _product(xp: Namespace, x: Array, dims: tuple[int, ...]) -> Array:
    for dim in dims:
        x = xp.prod(x, dim, keepdim=True)
    return x


for _name, _function, _since in (
    ("ReduceSum", lambda _, x, d: x.sum(d, keepdim=True), 13),
    ("ReduceMax", lambda _, x, d: x.amax(d, keepdim=True), 18),
    ("ReduceMin", lambda _, x, d: x.amin(d, keepdim=True), 18),
    ("ReduceMean", lambda _, x, d: x.mean(d, keepdim=True), 18),
    ("ReduceProd", _product, 18),
    ("ReduceL1", lambda _, x, d: x.abs().sum(d, keepdim=True), 18),
    ("ReduceL2", lambda _, x, d: (x * x).sum(d, keepdim=True).sqrt(), 18),
    ("ReduceSumSquare", lambda _, x, d: (x * x).sum(d, keepdim=True), 18),
    ("ReduceLogSumExp", lambda _, x, d: x.logsumexp(d, keepdim=True), 18),
    ("ReduceLogSum", lambda _, x, d: x.sum(d, keepdim=True).log(), 18),
):
    op(_name, since=_since, host=(1,))(_reduction(_function))
