"""Convolution, pooling, normalisation and reduction by torch's functions; ``xp`` is torch."""

from __future__ import annotations

import math
from collections.abc import Callable

from tenonnx import Array, Namespace
from tenonnx_array.window_table import window_table
from tenonnx_array.windows import Windows
from tenonnx_torch.kernels import KERNELS

REAL_ONLY = frozenset(
    ("AveragePool", "Conv", "ConvTranspose", "GlobalAveragePool", "MatMul", "MaxPool", "Mean")
)
"""Operators that torch computes for floats only."""

op = KERNELS.op


def padded(xp: Namespace, X: Array, windows: Windows, value: float = 0.0) -> Array:
    """Returns X (N, C, D1, ...) with all that the windows see around it, and no more."""
    pads = [size for axis in reversed(windows.around) for size in axis]
    return xp.nn.functional.pad(X, pads, value=value) if any(pads) else X


def convolve(
    xp: Namespace, X: Array, W: Array, B: Array | None, windows: Windows, group: int
) -> Array:
    """Correlates images with filters; torch pads on its own where both sides get the same."""
    function = getattr(xp.nn.functional, f"conv{X.ndim - 2}d")
    even = windows.begins == windows.ends
    X, around = (X, windows.begins) if even else (padded(xp, X, windows), 0)
    return function(X, W, B, windows.strides, around, windows.dilations, group)


def greatest(xp: Namespace, X: Array, windows: Windows) -> Array:
    """Returns the greatest element of each window."""
    function = getattr(xp.nn.functional, f"max_pool{X.ndim - 2}d")
    X = padded(xp, X, windows, -math.inf)
    return function(X, windows.kernel, windows.strides, 0, windows.dilations)


def average(xp: Namespace, X: Array, windows: Windows, counts: Array) -> Array:
    """Returns the mean of each window, every channel being an image of its own."""
    function = getattr(xp.nn.functional, f"conv{X.ndim - 2}d")
    ones = xp.ones((1, 1, *windows.kernel), dtype=X.dtype, device=X.device)
    images = padded(xp, X.reshape(-1, 1, *windows.size), windows)
    sums = function(images, ones, stride=windows.strides, dilation=windows.dilations)
    scale = xp.as_tensor(counts, dtype=X.dtype, device=X.device)
    return (sums / scale).reshape(*X.shape[:2], *windows.output)


KERNELS.update(window_table(convolve, greatest, average))


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
