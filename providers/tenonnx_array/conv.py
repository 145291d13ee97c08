"""Convolution in any number of dimensions, as matrix products per group.

Windows are copied into a column buffer of bounded size, block by block, and every block is one
stack of matrix products; a 1x1 kernel needs no buffer. Depthwise convolution is the case of one
input channel per group. Floats of 16 bits are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx.process import interruption
from tenonnx_array.nonlinear import swish
from tenonnx_array.precision import widened
from tenonnx_array.products import CHAIN_TERMS, matmul
from tenonnx_array.windows import Windows, place

table = OperatorTable()
op = table.op

# Size of the column buffer: a block that is still in the cache when it is multiplied.
COLUMN_BYTES = 4 << 20


def windows_of(
    X: Array,
    W: Array,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Windows:
    """Return the windows of a convolution of X (N, C, D1, ...) with W (M, C/group, k1, ...).

    Raises:
        ValueError: Channels, groups, kernel and attributes do not fit each other.
    """
    check_weights(X, W, group, kernel_shape)
    return place(
        X.shape[2:], W.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )


@op(
    "Conv",
    like=[windows_of],
    shapes=(
        "X: N C D ...; W: M C/group ...; B: M; len(X) == len(W); M % group == 0; "
        "not kernel_shape or tuple(kernel_shape) == W[2:]"
    ),
)
@widened
def conv(
    xp: Namespace,
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    group: int = 1,
    **attributes: Any,
) -> Array:
    """Return the convolution of X (N, C, D1, ...) with W (M, C/group, k1, ...), plus B (M).

    Raises:
        ValueError: Channels, groups, kernel and attributes do not fit each other.
    """
    windows = windows_of(X, W, group=group, **attributes)
    return add_bias(convolve(xp, X, W, windows, group), B)


def check_weights(X: Array, W: Array, group: int, kernel_shape: tuple[int, ...] | None) -> None:
    """Refuse weights that do not fit X.

    Raises:
        ValueError: The ranks, the channels, the groups or ``kernel_shape`` disagree.
    """
    if X.ndim != W.ndim or X.ndim < 3:
        raise ValueError(
            f"expected X and W of the same rank, at least 3, found shapes {X.shape} and {W.shape}"
        )
    if X.shape[1] != W.shape[1] * group or W.shape[0] % group:
        raise ValueError(
            f"expected W of shape (M, C/group, ...) with M divisible by group={group} for X of "
            f"shape {X.shape}, found {W.shape}"
        )
    if kernel_shape and tuple(kernel_shape) != W.shape[2:]:
        raise ValueError(f"expected W to have kernel_shape {kernel_shape}, found {W.shape[2:]}")


def add_bias(y: Array, bias: Array | None) -> Array:
    """Add one number per channel, in place.

    Raises:
        ValueError: There is not one number per channel.
    """
    if bias is not None:
        if bias.shape != y.shape[1:2]:
            raise ValueError(
                f"expected B of shape {y.shape[1:2]}, one number per channel, found {bias.shape}"
            )
        y += bias.reshape(-1, *(1,) * (y.ndim - 2))
    return y


def convolve(xp: Namespace, x: Array, w: Array, windows: Windows, group: int) -> Array:
    """Return the convolution, of shape (N, M, *windows.output), without the checks."""
    n, m = x.shape[0], w.shape[0]
    shape = (n, m, *windows.output)
    length = math.prod(windows.output)
    matrices = w.reshape(group, m // group, math.prod(w.shape[1:]))
    # A window that is the whole image makes one product of the batch, and not one for each item.
    if group == 1 and windows.is_whole:
        return matmul(xp, x.reshape(n, matrices.shape[2]), matrices[0].T).reshape(shape)
    if math.prod(windows.kernel) == 1 and not windows.is_padded:
        x = x[(..., *(positions for ((_, _, positions),) in windows.axes))]
        columns = x.reshape(n, group, matrices.shape[2], length)
        return matmul(xp, matrices, columns).reshape(shape)
    y = xp.empty((n, group, m // group, length), x.dtype)
    chain = windows.chain(x.shape[1], group, CHAIN_TERMS)
    x = x.reshape(n, group, x.shape[1] // group, *windows.size)
    for part, span in _row_blocks(windows, matrices.shape[2] * x.dtype.itemsize):
        unit = matrices.shape[2] * math.prod(part.output) * x.dtype.itemsize
        for items, groups in blocks(n, group, unit):
            interruption.check()
            out = y[items, groups, :, span]
            matmul(xp, matrices[groups], unfold(xp, x[items, groups], part), out, chain=chain)
    return y.reshape(shape)


def unfold(xp: Namespace, x: Array, windows: Windows) -> Array:
    """Return what every window reads of x (n, group, c, *size): (n, group, c * kernel, length)."""
    lead = x.shape[:3]
    allocate = xp.zeros if windows.is_padded else xp.empty  # nothing writes the padding's zeros
    columns = allocate((*lead, *windows.kernel, *windows.output), x.dtype)
    for offset, where, positions in windows.taps:
        columns[(slice(None),) * 3 + offset + where] = x[(..., *positions)]
    rows = lead[2] * math.prod(windows.kernel)
    return columns.reshape(*lead[:2], rows, math.prod(windows.output))


def _row_blocks(windows: Windows, bytes_per_window: int) -> Iterator[tuple[Windows, slice]]:
    """Cut the windows along the first axis into parts that fit the column buffer."""
    row = math.prod(windows.output[1:])
    step = max(COLUMN_BYTES // max(bytes_per_window * row, 1), 1)
    rows = windows.output[0]
    # As many parts, but of nearly equal size, so that the last one is not a product of few columns.
    step = -(-rows // -(-rows // step)) if rows else 1
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        part = windows if stop - start == rows else windows.part(start, stop)
        yield part, slice(start * row, stop * row)


def blocks(items: int, groups: int, unit: int) -> Iterator[tuple[slice, slice]]:
    """Cut (items, groups) of ``unit`` bytes each to fit the buffer: whole items if one does."""
    count = max(COLUMN_BYTES // max(unit, 1), 1)
    if count >= groups:
        step = count // groups
        for start in range(0, items, step):
            yield slice(start, start + step), slice(None)
        return
    for item in range(items):
        for start in range(0, groups, count):
            yield slice(item, item + 1), slice(start, start + count)


@op(
    "CausalConvWithState",
    since=27,
    multiple=True,
    shapes="input: N C L; weight: C 1 K; bias: C; past_state: N C K-1",
)
def causal_conv_with_state(
    xp: Namespace,
    input: Array,  # noqa: A002 - the specification's name
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str = "none",
) -> tuple[Array, Array]:
    """Convolve each channel with what came before it; return that and the last k - 1 inputs.

    Raises:
        ValueError: An unknown activation.
    """
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"expected activation to be none, silu or swish, found {activation!r}")
    n, channels, length = input.shape
    past = weight.shape[2] - 1
    if past_state is None:
        past_state = xp.zeros((n, channels, past), input.dtype)
    whole = xp.concatenate([past_state, input], axis=2)
    y = conv(xp, whole, weight, bias, group=channels)
    if activation != "none":
        y = swish(xp, y)
    return y, whole[:, :, length:]
