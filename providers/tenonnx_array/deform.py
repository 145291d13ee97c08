"""Deformable convolution: every tap of every window reads X at a place of its own.

The samples become the columns of an ordinary convolution. Channels that share their offsets are
gathered as rows, so that one index moves all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.conv import add_bias, blocks, check_weights
from tenonnx_array.precision import widened
from tenonnx_array.windows import Windows, place

table = OperatorTable()
op = table.op


@op(
    "DeformConv",
    since=19,
    shapes=(
        "X: N C ...; W: M C/group ...; offset: N offset_group*taps*(len(W)-2) ...; "
        "mask: N offset_group*taps *offset[2:]; B: M; taps = prod(W[2:]); "
        "len(X) == len(W) == len(offset)"
    ),
)
@widened
def deform_conv(
    xp: Namespace,
    X: Array,
    W: Array,
    offset: Array,
    B: Array | None = None,
    mask: Array | None = None,
    *,
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    offset_group: int = 1,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    _sample: Callable[..., Array | None] | None = None,
) -> Array:
    """Return the convolution of X sampled where its windows are moved to, plus B.

    ``offset`` has shape (N, offset_group * k1 * ... * n, o1, ...): one coordinate per spatial axis
    for each tap; ``mask``, one factor for each. ``_sample`` may do as ``sample``, or return nothing
    where it does not. See https://arxiv.org/abs/1811.11168.

    Raises:
        ValueError: Channels, groups, kernel, offsets, mask and attributes do not fit each other.
    """
    check_weights(X, W, group, kernel_shape)
    windows = place(X.shape[2:], W.shape[2:], strides=strides, dilations=dilations, pads=pads)
    n, c = X.shape[:2]
    taps, length = math.prod(windows.kernel), math.prod(windows.output)
    if c % offset_group:
        raise ValueError(f"expected channels divisible by offset_group={offset_group}, found {c}")
    shape = (n, offset_group * taps * len(windows.size), *windows.output)
    if offset.shape != shape:
        raise ValueError(f"expected offset of shape {shape}, found {offset.shape}")
    shape = (n, offset_group * taps, *windows.output)
    if mask is not None and mask.shape != shape:
        raise ValueError(f"expected mask of shape {shape}, found {mask.shape}")
    m = W.shape[0]
    matrices = W.reshape(group, m // group, math.prod(W.shape[1:]))
    y = xp.empty((n, group, m // group, length), X.dtype)
    for items, _ in blocks(n, 1, c * taps * length * X.dtype.itemsize):
        factors = None if mask is None else mask[items]
        given = X[items], offset[items], factors, windows, offset_group
        columns = None if _sample is None else _sample(*given)
        columns = sample(xp, *given) if columns is None else columns
        xp.matmul(matrices, columns.reshape(-1, group, matrices.shape[2], length), out=y[items])
    return add_bias(y.reshape(n, m, *windows.output), B)


def sample(
    xp: Namespace,
    x: Array,
    offset: Array,
    mask: Array | None,
    windows: Windows,
    groups: int,
) -> Array:
    """Return x (N, C, *size) between its elements, (N, C, taps, length); zero outside.

    Along each axis a place lies between two elements that share the weight linearly.
    """
    n, c = x.shape[0], x.shape[1] // groups
    taps, length = math.prod(windows.kernel), math.prod(windows.output)
    offset = offset.reshape(n, groups, taps, len(windows.size), length)
    image = xp.arange(n * groups).reshape(n, groups, 1, 1)
    everywhere = xp.ones((1, 1, 1, 1), x.dtype)
    factors = everywhere if mask is None else mask.reshape(n, groups, taps, length)
    corners = [(image, factors)]
    for axis, size in enumerate(windows.size):
        regular = xp.asarray(regular_places(windows, axis).astype(x.dtype))
        # An offset may be any number: beyond -1 and size all is zero, and int64 holds what is left.
        at = xp.clip(offset[:, :, :, axis] + regular, -1, size)
        below = xp.floor(at)
        above_share = at - below
        below = below.astype(xp.int64)
        sides = ((below, 1 - above_share), (below + 1, above_share))
        corners = [
            (
                index * size + xp.clip(where, 0, size - 1),  # of weight 0 where it was outside
                weight * share * ((where >= 0) & (where < size)),
            )
            for index, weight in corners
            for where, share in sides
        ]
    positions = math.prod(windows.size)
    rows = x.reshape(n * groups, c, positions).swapaxes(1, 2).reshape(-1, c)
    total = xp.zeros((n, groups, taps, length, c), x.dtype)
    for index, weight in corners:
        values = xp.take(rows, index, axis=0)
        values *= weight[..., None]
        total += values
    return xp.moveaxis(total, -1, 2).reshape(n, groups * c, taps, length)


def regular_places(windows: Windows, axis: int) -> Array:
    """Return where each tap of each window falls without offsets, (taps, length)."""
    rank = len(windows.size)
    firsts = np.arange(windows.output[axis]) * windows.strides[axis] - windows.begins[axis]
    steps = np.arange(windows.kernel[axis]) * windows.dilations[axis]
    steps = steps.reshape(-1, *(1,) * (2 * rank - 1 - axis))
    places = steps + firsts.reshape(-1, *(1,) * (rank - 1 - axis))
    whole = np.broadcast_to(places, (*windows.kernel, *windows.output))
    return whole.reshape(math.prod(windows.kernel), math.prod(windows.output))
