"""The transpose of convolution, and the same sum over blocks alone: Col2Im.

Both scatter through the windows by which a convolution would gather.
"""

from __future__ import annotations

import math

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.conv import add_bias, blocks
from tenonnx_array.precision import widened
from tenonnx_array.windows import Windows, fold, place, split

table = OperatorTable()
op = table.op


@op("ConvTranspose")
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
    windows = _transposed(
        X.shape[2:], W.shape[2:], strides, dilations, pads, auto_pad, output_padding, output_shape
    )
    n, c, m = X.shape[0], X.shape[1] // group, W.shape[1]
    length = math.prod(X.shape[2:])
    matrices = W.reshape(group, c, m * math.prod(windows.kernel)).swapaxes(1, 2)
    x = X.reshape(n, group, c, length)
    y = xp.empty((n, group * m, *windows.size), X.dtype)
    unit = group * matrices.shape[1] * length * X.dtype.itemsize
    for items, _ in blocks(n, 1, unit):
        columns = xp.matmul(matrices, x[items])
        columns = columns.reshape(-1, group * m, *windows.kernel, *windows.output)
        y[items] = fold(xp, columns, windows)
    return add_bias(y, B)


def _transposed(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    auto_pad: str,
    output_padding: tuple[int, ...] | None,
    output_shape: tuple[int, ...] | None,
) -> Windows:
    """Return the windows of the convolution that this is the transpose of: ``size`` is its output.

    Along an axis, ``total_padding = stride * (n - 1) + output_padding + extent - result``.
    """
    rank = len(size)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    extra = output_padding or (0,) * rank
    pads = pads or (0,) * (2 * rank)
    full = [
        stride * (n - 1) + more + (k - 1) * d + 1
        for n, stride, more, k, d in zip(size, strides, extra, kernel, dilations, strict=True)
    ]
    if output_shape or auto_pad.startswith("SAME"):
        same = tuple(n * stride for n, stride in zip(size, strides, strict=True))
        target = tuple(output_shape[-rank:]) if output_shape else same
        shares = [split(max(f - t, 0), auto_pad) for f, t in zip(full, target, strict=True)]
        begins, ends = zip(*shares, strict=True)
    else:
        if auto_pad == "VALID":
            pads = (0,) * (2 * rank)
        begins, ends = tuple(pads[:rank]), tuple(pads[rank:])
        target = tuple(f - b - e for f, b, e in zip(full, begins, ends, strict=True))
    if min(target, default=1) < 1:
        raise ValueError(f"expected an output of at least 1 along each axis, found {target}")
    return Windows(target, kernel, tuple(strides), tuple(dilations), begins, ends, size)


@op("Col2Im", since=18, host=(1, 2))
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
    return fold(xp, input.reshape(n, c, *kernel, *windows.output), windows)
