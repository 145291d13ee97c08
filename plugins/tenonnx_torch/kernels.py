"""Operators that torch computes in one call and the operator table in several; ``xp`` is torch."""

from __future__ import annotations

import math

from tenonnx import Array, Namespace
from tenonnx_array.window_table import window_table
from tenonnx_array.windows import Windows


def padded(xp: Namespace, X: Array, windows: Windows, value: float = 0.0) -> Array:
    """Return X (N, C, D1, ...) padded or cut to the part that windows cover."""
    pads = [size for axis in reversed(windows.around) for size in axis]
    return xp.nn.functional.pad(X, pads, value=value) if any(pads) else X


def convolve(
    xp: Namespace, X: Array, W: Array, B: Array | None, windows: Windows, group: int
) -> Array:
    """Correlate images with filters; torch pads itself if both sides have the same padding."""
    function = getattr(xp.nn.functional, f"conv{X.ndim - 2}d")
    even = windows.begins == windows.ends
    X, around = (X, windows.begins) if even else (padded(xp, X, windows), 0)
    return function(X, W, B, windows.strides, around, windows.dilations, group)


def greatest(xp: Namespace, X: Array, windows: Windows) -> Array:
    """Return the greatest element of each window."""
    function = getattr(xp.nn.functional, f"max_pool{X.ndim - 2}d")
    if not X.is_floating_point():  # bytes, for which torch has no pooling
        return greatest(xp, X.float(), windows).to(X.dtype)
    X = padded(xp, X, windows, -math.inf)
    return function(X, windows.kernel, windows.strides, 0, windows.dilations)


def average(xp: Namespace, X: Array, windows: Windows, counts: Array) -> Array:
    """Return the mean of each window; every channel is an image of its own."""
    function = getattr(xp.nn.functional, f"conv{X.ndim - 2}d")
    ones = xp.ones((1, 1, *windows.kernel), dtype=X.dtype, device=X.device)
    images = padded(xp, X.reshape(-1, 1, *windows.size), windows)
    sums = function(images, ones, stride=windows.strides, dilation=windows.dilations)
    scale = xp.as_tensor(counts, dtype=X.dtype, device=X.device)
    return (sums / scale).reshape(*X.shape[:2], *windows.output)


table = window_table(convolve, greatest, average)
op = table.op
TORCH_UNARY = {
    "Erf": (9, "erf"),
    "HardSwish": (14, "nn.functional.hardswish"),
    "Mish": (18, "nn.functional.mish"),
    "Relu": (6, "relu"),
    "Sigmoid": (6, "sigmoid"),
    "Softplus": (1, "nn.functional.softplus"),
}
for _name, (_since, _function) in TORCH_UNARY.items():
    table.rows({_name: _function}, since=_since)
table.rows({"MatMul": "matmul"})
table.rows({"Where": "where"}, since=9)


@op("Gelu", since=20)
def gelu(xp: Namespace, x: Array, *, approximate: str = "none") -> Array:
    return xp.nn.functional.gelu(x, approximate=approximate)


@op("Softmax", since=13)
def softmax(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    return xp.softmax(x, axis)


@op("LogSoftmax", since=13)
def log_softmax(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    return xp.log_softmax(x, axis)


@op("Gemm", since=7)
def gemm(
    xp: Namespace,
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    a, b = a.T if transA else a, b.T if transB else b
    if c is not None:
        return xp.addmm(c, a, b, beta=beta, alpha=alpha)
    return xp.matmul(a, b) if alpha == 1 else alpha * xp.matmul(a, b)


@op("LayerNormalization", since=17)
def layer_normalization(
    xp: Namespace,
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Array:
    del stash_type  # torch sums in float32
    shape = x.shape[axis % x.ndim :]
    bias = None if bias is None else bias.expand(shape)
    return xp.nn.functional.layer_norm(x, shape, scale.expand(shape), bias, epsilon)


@op("BatchNormalization", since=9)
@op("BatchNormalization", since=14)
def batch_normalization(
    xp: Namespace,
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> Array:
    del momentum  # only for training, which the operator table does
    return xp.nn.functional.batch_norm(x, mean, var, scale, bias, eps=epsilon)
