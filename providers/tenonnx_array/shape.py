"""Shapes and the changes of shape; every result is a view if the array's strides allow it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.graph.shape_checks import broadcast_shapes
from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation

table = OperatorTable()
op = table.op


@op("Shape", since=15, host_output=True)
@op("Shape", host_output=True, without=("start", "end"))
def shape(_xp: Namespace, data: Array, *, start: int = 0, end: int | None = None) -> Array:
    """Dimensions ``start`` to ``end``, clamped to the rank as Python's slices are."""
    return np.array(data.shape[start:end], np.int64)


@op("Size", host_output=True)
def size(_xp: Namespace, data: Array) -> Array:
    return np.array(math.prod(data.shape), np.int64)


@op("Reshape", since=14, host=(1,))
@op("Reshape", since=5, host=(1,), without=("allowzero",))
def reshape(_xp: Namespace, data: Array, shape: Array, *, allowzero: int = 0) -> Array:
    if shape.ndim != 1:
        raise ValueError(f"expected a list of sizes as shape, found {shape.shape}")
    return _reshape(data, shape.tolist(), bool(allowzero))


@op("Reshape")
def reshape_1(
    _xp: Namespace,
    data: Array,
    *,
    shape: Sequence[int] = (),
    consumed_inputs: Sequence[int] = (),  # noqa: ARG001 - named in the schema, without a meaning
) -> Array:
    return _reshape(data, shape)


def _reshape(data: Array, shape: Sequence[int], allowzero: bool = False) -> Array:
    if min(shape, default=0) < -1:
        raise ValueError(f"expected a shape of -1, 0 and sizes, found {list(shape)}")
    if allowzero and {0, -1} <= {*shape}:
        raise ValueError(f"with allowzero a shape cannot hold both 0 and -1, found {shape}")
    sizes = _copied_zeros(data.shape, shape) if 0 in shape and not allowzero else shape
    try:
        return data.reshape(sizes)
    except ValueError:
        raise ValueError(
            f"expected a shape of the {data.size} elements of data {list(data.shape)}, "
            f"found {list(shape)}"
        ) from None


def _copied_zeros(dims: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Replace each 0 by the input's dimension there, and then -1.

    The copied dimensions cancel before -1 is inferred, so that (1, 0, 12, 64) becomes
    (1, 0, 768) for [0, 0, -1], which the sizes alone leave open.
    """
    try:
        target = [n or dims[i] for i, n in enumerate(shape)]
    except IndexError:
        raise ValueError(
            f"shape {list(shape)} copies a dimension that {tuple(dims)} does not have"
        ) from None
    if -1 in target and 0 in target:
        kept = {i for i, n in enumerate(shape) if n == 0}
        free = math.prod(n for i, n in enumerate(dims) if i not in kept)
        given = math.prod(n for i, n in enumerate(target) if i not in kept and n != -1)
        if free % given:
            raise ValueError(f"cannot reshape {tuple(dims)} to {list(shape)}: -1 fits no size")
        target[target.index(-1)] = free // given
    return target


@op("Flatten")
def flatten(_xp: Namespace, x: Array, *, axis: int = 1) -> Array:
    if abs(axis) > x.ndim:
        raise ValueError(f"axis {axis} is outside [-{x.ndim}, {x.ndim}], for shape {x.shape}")
    outer, inner = x.shape[:axis], x.shape[axis:]
    return x.reshape((math.prod(outer), math.prod(inner)))


@op("Squeeze", since=13, host=(1,), shapes="axes: | n")
def squeeze(_xp: Namespace, data: Array, axes: Array | None = None) -> Array:
    """Drop ``axes`` of size 1: all such if absent, none if empty."""
    return data.squeeze(None if axes is None else tuple(axes.ravel().tolist()))


@op("Squeeze")
def squeeze_1(_xp: Namespace, data: Array, *, axes: Sequence[int] | None = None) -> Array:
    return data.squeeze(axes)


@op("Unsqueeze", since=13, host=(1,), shapes="axes: | n")
def unsqueeze(xp: Namespace, data: Array, axes: Array) -> Array:
    return xp.expand_dims(data, tuple(axes.ravel().tolist()))


@op("Unsqueeze")
def unsqueeze_1(xp: Namespace, data: Array, *, axes: Sequence[int]) -> Array:
    return xp.expand_dims(data, tuple(axes))


@op("Transpose")
def transpose(_xp: Namespace, data: Array, *, perm: Sequence[int] | None = None) -> Array:
    return data.transpose(perm)


@op("Expand", since=8, host=(1,), shapes="shape: n")
def expand(xp: Namespace, x: Array, shape: Array) -> Array:
    """Broadcast both ways: a 1 in ``shape`` keeps the input's dimension."""
    wide = broadcast_shapes(x.shape, tuple(shape.tolist()))
    check_allocation(xp, wide, x.dtype)  # the view takes nothing, what comes of it does
    return xp.broadcast_to(x, wide)


@op("DepthToSpace", since=11)
@op("DepthToSpace", without=("mode",))
def depth_to_space(_xp: Namespace, x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    blocks, shape = depth_in_space(x, blocksize, mode)
    return blocks.reshape(shape)


@cacheable
def depth_in_space(x: Array, blocksize: int, mode: str) -> tuple[Array, tuple[int, ...]]:
    """Return DepthToSpace's result with an axis for each part of a block, and its shape."""
    _check_blocks(blocksize, mode)
    b, c, h, w = x.shape
    depth = c // blocksize**2
    if mode == "DCR":
        blocks = x.reshape((b, blocksize, blocksize, depth, h, w)).transpose((0, 3, 4, 1, 5, 2))
    else:
        blocks = x.reshape((b, depth, blocksize, blocksize, h, w)).transpose((0, 1, 4, 2, 5, 3))
    return blocks, (b, depth, h * blocksize, w * blocksize)


@op("SpaceToDepth", since=28)
@op("SpaceToDepth", without=("mode",))
def space_to_depth(_xp: Namespace, x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    blocks, shape = space_in_depth(x, blocksize, mode)
    return blocks.reshape(shape)


@cacheable
def space_in_depth(x: Array, blocksize: int, mode: str) -> tuple[Array, tuple[int, ...]]:
    """Return SpaceToDepth's result with an axis for each part of a block, and its shape."""
    _check_blocks(blocksize, mode)
    b, c, h, w = x.shape
    blocks = x.reshape((b, c, h // blocksize, blocksize, w // blocksize, blocksize))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    shape = (b, c * blocksize**2, h // blocksize, w // blocksize)
    return blocks.transpose(order), shape


def _check_blocks(blocksize: int, mode: str) -> None:
    if mode not in ("DCR", "CRD"):
        raise ValueError(f"expected mode DCR or CRD, found {mode}")
    if blocksize < 1:
        raise ValueError(f"expected a blocksize of at least 1, found {blocksize}")
