"""The transpose of convolution, and the same sum over blocks alone: Col2Im.

Both scatter through the windows by which a convolution would gather.
"""

from __future__ import annotations

import math

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation
from tenonnx_array.conv import add_bias, blocks
from tenonnx_array.precision import widened
from tenonnx_array.products import matmul
from tenonnx_array.windows import fold, place, place_transposed

table = OperatorTable()
op = table.op


@op(
    "ConvTranspose",
    shapes=(
        "X: N C D ...; W: C M ...; B: M*group; len(X) == len(W); C % group == 0; "
        "not kernel_shape or tuple(kernel_shape) == W[2:]"
    ),
)
@widened
def conv_transpose(
    xp: Namespace,
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    output_padding: tuple[int, ...] | None = None,
    output_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Array:
    """Return the transpose of a convolution with W (C, M/group, k1, ...), plus B (M).

    An explicit ``output_shape`` wins over ``pads``. It may have batch and channels in front.
    Its odd padding goes to the beginning unless ``auto_pad`` is SAME_UPPER, as from opset 11 on:
    opset 1 says both that and the contrary.

    Raises:
        ValueError: Channels, groups, kernel and attributes do not fit each other.
    """
    if X.ndim != W.ndim or X.shape[1] != W.shape[0] or W.shape[0] % group:
        raise ValueError(
            f"expected W of shape (C, M/group, ...) with C divisible by group={group} for X of "
            f"shape {X.shape}, found {W.shape}"
        )
    if kernel_shape and tuple(kernel_shape) != W.shape[2:]:
        raise ValueError(f"expected W to have kernel_shape {kernel_shape}, found {W.shape[2:]}")
    size, kernel = X.shape[2:], W.shape[2:]
    windows = place_transposed(
        size, kernel, strides, dilations, pads, auto_pad, output_padding, output_shape
    )
    n, c, m = X.shape[0], X.shape[1] // group, W.shape[1]
    length, taps = math.prod(X.shape[2:]), math.prod(windows.kernel)
    w = W.reshape(group, c, m, taps)
    x = X.reshape(n, group, c, length)
    y = xp.empty((n, group, m, *windows.size), X.dtype)
    # In blocks: every tap's product with every place exists before the sum over windows.
    for items, channels in blocks(n, m, group * taps * length * X.dtype.itemsize) if m else ():
        part = w[:, :, channels]
        some = part.shape[2]
        columns = matmul(xp, part.reshape(group, c, some * taps).swapaxes(1, 2), x[items])
        columns = columns.reshape(len(columns), group, some, *windows.kernel, *windows.output)
        y[items, :, channels] = fold(xp, columns, windows)
    y = y.reshape(n, group * m, *windows.size)
    return add_bias(y, B)


@op("Col2Im", since=18, host=(1, 2), shapes="input: N C L; image_shape block_shape: n")
def col2im(
    xp: Namespace,
    input: Array,  # noqa: A002 - the specification's name
    image_shape: Array,
    block_shape: Array,
    *,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Array:
    """Return images (N, C, *image_shape) from blocks (N, C * prod(block_shape), L), added up.

    Raises:
        ValueError: L is not the number of blocks of the image.
    """
    kernel = tuple(map(int, block_shape))
    windows = place(
        tuple(map(int, image_shape)), kernel, strides=strides, dilations=dilations, pads=pads
    )
    n, channels, length = input.shape
    if length != math.prod(windows.output) or channels % math.prod(kernel):
        raise ValueError(
            f"expected {math.prod(windows.output)} blocks of a multiple of {math.prod(kernel)} "
            f"numbers, found shape {input.shape}"
        )
    c = channels // math.prod(kernel)
    check_allocation(xp, (n, c, *windows.size), input.dtype)
    return fold(xp, input.reshape(n, c, *kernel, *windows.output), windows)
