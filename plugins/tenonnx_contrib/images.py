"""Convolution, pooling and norms of images, with channels last too; crops."""

from __future__ import annotations

import itertools
import math
from typing import Any

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.conv import conv
from tenonnx_array.conv_transpose import conv_transpose
from tenonnx_array.dtypes import accumulator
from tenonnx_array.grid import grid_sample_16
from tenonnx_array.nonlinear import swish
from tenonnx_array.norm import in_groups
from tenonnx_array.pool import max_pool
from tenonnx_array.windows import place
from tenonnx_contrib.fused import fused_conv

table = OperatorTable("com.microsoft")
op = table.op
op("GridSample")(grid_sample_16)


@op("NhwcMaxPool", like=[max_pool], without=("storage_order", "_outputs"))
def nhwc_max_pool(xp: Namespace, x: Array, **attributes: Any) -> Array:
    """Return MaxPool of (N, D1, ..., C)."""
    (y,) = max_pool(xp, xp.moveaxis(x, -1, 1), **attributes)
    return xp.moveaxis(y, 1, -1)


@op(
    "MaxpoolWithMask",
    shapes=(
        "X: N C D ...; len(M) == len(X) if M is not None else True; "
        "M is None or M[2:] == X[2:]; M is None or 0 not in M or 0 in X"
    ),
)
def maxpool_with_mask(
    xp: Namespace,
    X: Array,
    M: Array,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    storage_order: int = 0,  # noqa: ARG001 - says how places are counted, which no output tells
    strides: tuple[int, ...] | None = None,
) -> Array:
    """Return the maximum of what each row of a window shows before its mask's first zero.

    Elements that no row shows are the least float; the first element of an image of two axes or
    more is never hidden. M serves as many images (of a batch and channel each) as it has, over and
    over; onnxruntime 1.31.1, where it has several, reads it elsewhere.
    """
    size = X.shape[2:]
    windows = place(size, tuple(kernel_shape), strides=strides, pads=pads, auto_pad=auto_pad)
    images = math.prod(X.shape[:2])
    shown = xp.resize(M.reshape(-1, *size) != 0, (images, *size)).reshape(X.shape)
    if len(size) > 1:
        shown[(slice(None), slice(None), *(0 for _ in size))] = True
    least = xp.finfo(X.dtype).min
    y = xp.full((*X.shape[:2], *windows.output), least, X.dtype)
    for _, taps in itertools.groupby(windows.taps, lambda tap: tap.offset[:-1]):
        open_ = xp.ones(y.shape, bool)
        for _, where, positions in taps:
            open_[(..., *where)] &= shown[(..., *positions)]
            seen = xp.where(open_[(..., *where)], X[(..., *positions)], least)
            part = y[(..., *where)]
            xp.fmax(part, seen, out=part)
    return y


@op("NhwcConv", like=[conv])
@op("NhwcFusedConv", like=[fused_conv])
def nhwc_fused_conv(
    xp: Namespace,
    X: Array,
    W: Array,
    B: Array | None = None,
    Z: Array | None = None,
    **attributes: Any,
) -> Array:
    """Return FusedConv of X (N, D1, ..., C) with W (M, k1, ..., C/group)."""
    y = fused_conv(
        xp,
        xp.moveaxis(X, -1, 1),
        xp.moveaxis(W, -1, 1),
        B,
        None if Z is None else xp.moveaxis(Z, -1, 1),
        **attributes,
    )
    return xp.moveaxis(y, 1, -1)


@op(
    "ConvTransposeWithDynamicPads",
    like=[conv_transpose],
    without=("output_shape", "pads"),
    host=(2,),
    shapes="X: N C D ...; W: C M ...; Pads: 2*len(X)-4; B: M*group; len(X) == len(W)",
)
def conv_transpose_with_dynamic_pads(
    xp: Namespace,
    X: Array,
    W: Array,
    Pads: Array | None = None,
    B: Array | None = None,
    **attributes: Any,
) -> Array:
    """Return ConvTranspose with pads that are an input."""
    pads = None if Pads is None else tuple(Pads.ravel().tolist())
    return conv_transpose(xp, X, W, B, pads=pads, **attributes)


@op("CropAndResize", host=(3,), shapes="X: N C H W; rois: R 4; batch_indices: R; crop_size: 2")
def crop_and_resize(
    xp: Namespace,
    X: Array,
    rois: Array,
    batch_indices: Array,
    crop_size: Array,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Array:
    """Return a crop of X (N, C, H, W) for every (y1, x1, y2, x2), resized with aligned corners.

    Corners are fractions of the image's last places; elements outside the image are
    ``extrapolation_value``.
    """
    high, wide = (int(n) for n in crop_size)
    rows = sampled(xp, rois[:, 0], rois[:, 2], X.shape[2], high)[:, :, None]
    columns = sampled(xp, rois[:, 1], rois[:, 3], X.shape[3], wide)[:, None, :]
    inside = (rows >= 0) & (rows <= X.shape[2] - 1) & (columns >= 0) & (columns <= X.shape[3] - 1)
    images = batch_indices[:, None, None]

    def at(y: Array, x: Array) -> Array:
        y = xp.clip(y, 0, X.shape[2] - 1).astype(xp.int64)
        return X[images, :, y, xp.clip(x, 0, X.shape[3] - 1).astype(xp.int64)]

    if mode == "nearest":
        y = at(xp.floor(rows + 0.5), xp.floor(columns + 0.5))
    else:
        top, left = xp.floor(rows), xp.floor(columns)
        down, right = (rows - top)[..., None], (columns - left)[..., None]
        above = at(top, left) * (1 - right) + at(top, xp.ceil(columns)) * right
        below = at(xp.ceil(rows), left) * (1 - right) + at(xp.ceil(rows), xp.ceil(columns)) * right
        y = above * (1 - down) + below * down
    y = xp.where(inside[..., None], y, X.dtype.type(extrapolation_value))
    return xp.moveaxis(y, -1, 1).astype(X.dtype, copy=False)


def sampled(xp: Namespace, first: Array, last: Array, length: int, count: int) -> Array:
    """Return ``count`` places from first to last (crops, count); a single one is in the middle."""
    if count == 1:
        return ((first + last) / 2 * (length - 1))[:, None]
    steps = xp.arange(count, dtype=first.dtype)
    return (
        first[:, None] * (length - 1)
        + steps * (((last - first) * (length - 1) / (count - 1))[:, None])
    )


@op("GroupNorm")
def group_norm(
    xp: Namespace,
    X: Array,
    gamma: Array,
    beta: Array,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Array:
    """Return the group norm of (N, D1, ..., C), or of (N, C, D1, ...); its swish if asked for."""
    x = xp.moveaxis(X, -1, 1) if channels_last else X
    y = in_groups(xp, x.astype(accumulator(X.dtype), copy=False), groups, epsilon)
    shape = (1, -1, *(1,) * (X.ndim - 2))
    y = y * gamma.reshape(shape).astype(y.dtype) + beta.reshape(shape).astype(y.dtype)
    y = swish(xp, y) if activation else y
    return (xp.moveaxis(y, 1, -1) if channels_last else y).astype(X.dtype, copy=False)


@op("SkipGroupNorm", like=[group_norm], multiple=True)
def skip_group_norm(
    xp: Namespace,
    X: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    channels_last: int = 1,
    **attributes: Any,
) -> tuple[Array, Array]:
    """Return GroupNorm of ``X + skip + bias``, and that sum; skip may be one vector per image."""
    if skip.ndim == 2:
        skip = skip.reshape(skip.shape[0], *(1,) * (X.ndim - 2), skip.shape[1])
        skip = skip if channels_last else xp.moveaxis(skip, -1, 1)
    total = X + skip
    if bias is not None:
        total = total + (bias if channels_last else bias.reshape(1, -1, *(1,) * (X.ndim - 2)))
    return group_norm(xp, total, gamma, beta, channels_last=channels_last, **attributes), total
