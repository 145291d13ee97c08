"""Tensors from no tensor's values: Constant, ConstantOfShape, Range, EyeLike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation
from tenonnx_array.dtypes import INTEGERS, accumulator, dtype_of

table = OperatorTable()
op = table.op

NOT_TENSORS = (
    "value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings",
)  # fmt: skip


@op("Constant", since=12)
@op("Constant", since=11, without=NOT_TENSORS)
def constant(
    xp: Namespace,
    *,
    value: Array | None = None,
    sparse_value: Array | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Array:
    """Return the one attribute that is given, as a tensor.

    Strings stay on the host. ``sparse_value`` arrives dense: loading a model makes it so.
    """
    forms: list[tuple[Any, Any]] = [
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ]
    tensors = [np.array(v, dtype) for v, dtype in forms if v is not None]
    tensors += (tensor for tensor in (value, sparse_value) if tensor is not None)
    if len(tensors) != 1:
        raise ValueError(
            f"expected one of value, sparse_value and value_*, found {len(tensors)} of them"
        )
    return tensors[0] if tensors[0].dtype == object else xp.asarray(tensors[0])


@op("Constant")
def constant_1(xp: Namespace, *, value: Array) -> Array:
    return constant(xp, value=value)


@op("ConstantOfShape", since=9, host=(0,), shapes="shape: n")
def constant_of_shape(xp: Namespace, shape: Array, *, value: Array | None = None) -> Array:
    """Fill ``shape`` with the one element of ``value``, a float32 0 by default."""
    dims = shape.ravel().tolist()
    element = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    check_allocation(xp, dims, element.dtype)
    # Zeros take no memory until they are written to.
    if not element.any():
        return xp.zeros(dims, element.dtype)
    return xp.full(dims, element[0], element.dtype)


@op("Range", since=27, host=(0, 1, 2))
@op("Range", since=11, host=(0, 1, 2), without=("stash_type",))
def range_(
    xp: Namespace, start: Array, limit: Array, delta: Array, *, stash_type: int = 1
) -> Array:
    """Return ``start + i * delta`` for each i from 0 on that stays before ``limit``.

    float16 and bfloat16 compute in ``stash_type``; integers count exactly.
    """
    count, dtype = _count(start, limit, delta), start.dtype
    if dtype in INTEGERS:
        wide = np.dtype(np.int64)
    else:
        wide = dtype if accumulator(dtype) == dtype else dtype_of(stash_type)
    check_allocation(xp, (count,), wide)
    first, step = (x.astype(wide).item() for x in (start, delta))
    return (xp.arange(count, dtype=wide) * step + first).astype(dtype)


def _count(start: Array, limit: Array, delta: Array) -> int:
    if not delta.any():
        raise ValueError("expected a delta other than 0")
    if start.dtype in INTEGERS:
        return len(range(int(start.item()), int(limit.item()), int(delta.item())))
    first, last, step = (float(x.item()) for x in (start, limit, delta))
    return max(0, math.ceil((last - first) / step))


@op("EyeLike", since=9)
def eye_like(xp: Namespace, x: Array, *, dtype: int | None = None, k: int = 0) -> Array:
    rows, columns = x.shape
    return xp.eye(rows, columns, k, dtype=x.dtype if dtype is None else dtype_of(dtype))
