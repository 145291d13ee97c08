"""ONNX's operators by torch's functions; ``xp`` is torch. Numbers of elements are one per line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx import Array, Namespace, OperatorTable

KERNELS = OperatorTable()
op = KERNELS.op

DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    16: "bfloat16",
}
"""``TensorProto.DataType`` to torch's name."""


def _divide(xp: Namespace, a: Array, b: Array) -> Array:
    return xp.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")


def _folded(function: str) -> Callable[..., Array]:
    return lambda xp, *arrays: functools.reduce(getattr(xp, function), arrays)


KERNELS.rows(
    {
        **{
            name: name.lower()
            for name in ["Abs", "Neg", "Exp", "Log", "Sqrt", "Floor", "Ceil", "Round", "Sin", "Cos"]
        },
        **{
            name: name.lower()
            for name in ["Tan", "Sinh", "Cosh", "Tanh", "Asin", "Acos", "Atan", "Asinh"]
        },
        **{
            name: name.lower()
            for name in ["Acosh", "Atanh", "Sigmoid", "Erf", "Sign", "Reciprocal"]
        },
        "Relu": "relu",
        "Not": "logical_not",
        "IsNaN": "isnan",
        "MatMul": "matmul",
        "BitwiseAnd": "bitwise_and",
        "BitwiseOr": "bitwise_or",
        "BitwiseXor": "bitwise_xor",
        "BitwiseNot": "bitwise_not",
        "Where": "where",
        "Det": "det",
        "Max": _folded("maximum"),
        "Min": _folded("minimum"),
        "Sum": _folded("add"),
        "Identity": lambda _, x: x,
        "Softplus": lambda xp, x: xp.logaddexp(x, xp.zeros_like(x)),
        "Softsign": lambda _, x: x / (1 + abs(x)),
        "HardSwish": lambda xp, x: xp.nn.functional.hardswish(x),
        "Mish": lambda xp, x: x * xp.tanh(xp.logaddexp(x, xp.zeros_like(x))),
        "GlobalAveragePool": lambda _, x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
        "GlobalMaxPool": lambda _, x: x.amax(tuple(range(2, x.ndim)), keepdim=True),
        "Mean": lambda xp, *x: functools.reduce(xp.add, x) / len(x),
    }
)
KERNELS.rows(
    {
        "Add": "add",
        "Sub": "sub",
        "Mul": "mul",
        "Div": _divide,
        "Equal": "eq",
        "Less": "lt",
        "LessOrEqual": "le",
        "Greater": "gt",
        "GreaterOrEqual": "ge",
        "And": "logical_and",
        "Or": "logical_or",
        "Xor": "logical_xor",
        "Pow": lambda xp, a, b: xp.pow(a, b).to(a.dtype),
        "PRelu": lambda xp, x, slope: xp.where(x < 0, x * slope, x),
    },
    since=7,
)
KERNELS.rows(
    {
        "Expand": lambda xp, x, to: x.expand(xp.broadcast_shapes(x.shape, to.tolist())),
        "Tile": lambda xp, x, times: xp.tile(x, times.tolist()),
        "Squeeze": lambda _, x, axes=None: x.squeeze(*_axes(axes)),
    },
    since=13,
    host=(1,),
)


def _axes(axes: Any) -> tuple[Any, ...]:
    """Returns what to give a method of tensors: nothing, or a tuple of axes."""
    return () if axes is None else (tuple(np.asarray(axes).tolist()),)


@op("Elu")
def elu(xp: Namespace, x: Array, *, alpha: float = 1.0) -> Array:
    return xp.where(x < 0, alpha * xp.expm1(x), x)


@op("LeakyRelu", since=6)
def leaky_relu(xp: Namespace, x: Array, *, alpha: float = 0.01) -> Array:
    return xp.where(x < 0, alpha * x, x)


@op("HardSigmoid", since=6)
def hard_sigmoid(xp: Namespace, x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    return xp.clamp(alpha * x + beta, 0, 1)


@op("Gelu", since=20)
def gelu(xp: Namespace, x: Array, *, approximate: str = "none") -> Array:
    return xp.nn.functional.gelu(x, approximate=approximate)


@op("Clip", since=11)
def clip(xp: Namespace, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    x = x if low is None else xp.maximum(x, low)
    return x if high is None else xp.minimum(x, high)


@op("Softmax", since=13)
def softmax(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    return xp.softmax(x, axis)


@op("LogSoftmax", since=13)
def log_softmax(xp: Namespace, x: Array, *, axis: int = -1) -> Array:
    return xp.log_softmax(x, axis)


@op("Cast", since=6)
@op("Cast", since=19)
def cast(xp: Namespace, x: Array, *, to: int, saturate: int = 1) -> Array:
    del saturate  # it is about float8
    return x.to(getattr(xp, DTYPES[to]))


@op("Shape", host_output=True)
@op("Shape", since=15, host_output=True)
def shape(xp: Namespace, x: Array, *, start: int = 0, end: int | None = None) -> Array:
    del xp
    return np.array(x.shape[start:end], np.int64)


@op("Reshape", since=5, host=(1,))
def reshape(xp: Namespace, x: Array, to: Array, *, allowzero: int = 0) -> Array:
    del xp
    sizes = [x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(to.tolist())]
    return x.reshape(sizes)


@op("Flatten")
def flatten(xp: Namespace, x: Array, *, axis: int = 1) -> Array:
    del xp
    rows = int(np.prod(x.shape[:axis]))
    return x.reshape(rows, int(np.prod(x.shape[axis:])))


@op("Transpose")
def transpose(xp: Namespace, x: Array, *, perm: tuple[int, ...] | None = None) -> Array:
    del xp
    return x.permute(perm or tuple(reversed(range(x.ndim))))


@op("Unsqueeze", since=13, host=(1,))
def unsqueeze(xp: Namespace, x: Array, axes: Array) -> Array:
    rank = x.ndim + axes.size
    for axis in sorted(int(a) % rank for a in axes.reshape(-1)):
        x = xp.unsqueeze(x, axis)
    return x


@op("Concat", since=4)
def concat(xp: Namespace, *x: Array, axis: int) -> Array:
    return xp.cat(x, axis)


@op("Split", since=13, host=(1,), multiple=True)
@op("Split", since=18, host=(1,), multiple=True)
def split(
    xp: Namespace,
    x: Array,
    sizes: Array | None = None,
    *,
    axis: int = 0,
    num_outputs: int = 0,
    _outputs: int = 1,
) -> tuple[Array, ...]:
    count = num_outputs or _outputs
    each = -(-x.shape[axis] // count)
    return tuple(xp.split(x, each if sizes is None else sizes.tolist(), axis))


@op("Slice", since=10, host=(1, 2, 3, 4))
def slices(
    xp: Namespace,
    x: Array,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    axes = range(len(starts)) if axes is None else axes.tolist()
    steps = [1] * len(starts) if steps is None else steps.tolist()
    for axis, start, end, step in zip(axes, starts.tolist(), ends.tolist(), steps, strict=True):
        places = range(x.shape[axis])[start:end:step]
        if step > 0:
            x = xp.narrow(x, axis, places.start, max(places.stop - places.start, 0))
            x = x[(slice(None),) * (axis % x.ndim) + (slice(None, None, step),)]
        else:
            x = xp.index_select(x, axis, xp.tensor(list(places), device=x.device))
    return x


@op("Gather", since=1)
def gather(xp: Namespace, x: Array, indices: Array, *, axis: int = 0) -> Array:
    flat = indices.reshape(-1).long()
    found = xp.index_select(x, axis, xp.where(flat < 0, flat + x.shape[axis], flat))
    axis %= x.ndim
    return found.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@op("GatherElements", since=11)
def gather_elements(xp: Namespace, x: Array, indices: Array, *, axis: int = 0) -> Array:
    indices = indices.long()
    return xp.gather(x, axis, xp.where(indices < 0, indices + x.shape[axis], indices))


@op("CumSum", since=11, host=(1,))
def cumsum(xp: Namespace, x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
    along = int(axis)
    x = x.flip(along) if reverse else x
    sums = xp.cumsum(x, along, dtype=x.dtype)
    sums = sums - x if exclusive else sums
    return sums.flip(along) if reverse else sums


@op("TopK", since=11, host=(1,), multiple=True)
def top_k(
    xp: Namespace,
    x: Array,
    k: Array,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,  # noqa: A002 - the schema's
) -> tuple[Array, Array]:
    del sorted  # what is sorted is in some order
    values, places = xp.sort(x, dim=axis, descending=bool(largest), stable=True)
    count = int(k[0])
    return xp.narrow(values, axis, 0, count), xp.narrow(places, axis, 0, count)


@op("Einsum", since=12)
def einsum(xp: Namespace, *x: Array, equation: str) -> Array:
    return xp.einsum(equation, *x)


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
