"""RoiAlign: regions of images, interpolated and pooled to one size.

Interpolation and pooling go along one axis after the other. The mean of samples is a small matrix
for each axis of a region.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation
from tenonnx_array.precision import widened

table = OperatorTable()
op = table.op


class Side(NamedTuple):
    """A region's start along one axis, and its length."""

    start: Array
    extent: Array

    @classmethod
    def of(cls, corners: Array, axis: int, least: float) -> Side:
        """Return the side of a region [x1, y1, x2, y2] along x, 0, or y, 1."""
        return cls(corners[axis], max(corners[2 + axis] - corners[axis], least))

    def places(self, bins: int, count: int) -> Array:
        """Return where samples lie, ``count`` in every bin: (bins, count)."""
        dtype = self.start.dtype
        offsets = (np.arange(count, dtype=dtype) + dtype.type(0.5)) / max(count, 1)
        return self.start + self.extent / bins * (np.arange(bins, dtype=dtype)[:, None] + offsets)


class Samples(NamedTuple):
    """Positions that a region's bins read along an axis, both (bins, 2 * count): two per sample."""

    indices: Array
    weights: Array

    @property
    def span(self) -> slice:
        """The part of the axis that is read."""
        return slice(int(self.indices.min()), int(self.indices.max()) + 1)


@op("RoiAlign", since=16, host=(1, 2), shapes="X: N C H W; rois: R 4; batch_indices: R")
@widened
def roi_align(
    xp: Namespace,
    X: Array,
    rois: Array,
    batch_indices: Array,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """Return regions [x1, y1, x2, y2] of X (N, C, H, W): (len(rois), C, height, width).

    A bin is the mean of its samples; or the maximum of what the four elements around each sample
    contribute to it, which the specification's test calls max pooling. A sample more than an
    element outside of the image is 0.

    Raises:
        ValueError: The shapes do not fit, a region is of no image, or a mode is unknown.
    """
    if X.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 4 or len(batch_indices) != len(rois):
        raise ValueError(
            "expected X (N, C, H, W), rois (R, 4) and batch_indices (R,), found shapes "
            f"{X.shape}, {rois.shape} and {batch_indices.shape}"
        )
    if any(not 0 <= image < len(X) for image in batch_indices):
        raise ValueError(
            f"expected batch_indices from 0 to {len(X) - 1}, found {batch_indices.tolist()}"
        )
    if mode not in ("avg", "max"):
        raise ValueError(f"expected mode to be avg or max, found {mode!r}")
    aligned = coordinate_transformation_mode == "half_pixel"
    if not aligned and coordinate_transformation_mode != "output_half_pixel":
        raise ValueError(
            "expected coordinate_transformation_mode to be half_pixel or output_half_pixel, "
            f"found {coordinate_transformation_mode!r}"
        )
    shift = 0.5 if aligned else 0.0
    # Twice: rounded places decide how many samples there are and which are inside, as in
    # onnxruntime. With weights of exact places the largest error is 0.9 ulp instead of 6.1.
    corners = rois * rois.dtype.type(spatial_scale) - rois.dtype.type(shift)
    exact = rois.astype(np.float64) * spatial_scale - shift
    shape = (len(rois), X.shape[1], output_height, output_width)
    check_allocation(xp, shape, X.dtype)
    y = xp.zeros(shape, X.dtype)
    pool = mean if mode == "avg" else maximum
    bins = output_width, output_height
    side_of = functools.partial(Side.of, least=-math.inf if aligned else 1)
    regions = zip(batch_indices, corners, exact, strict=True)
    for number, (image, rounded, wide) in enumerate(regions):
        columns, rows = (
            samples(side_of(rounded, axis), side_of(wide, axis), bins[axis], sampling_ratio, length)
            for axis, length in enumerate(X.shape[:1:-1])
        )
        if rows.indices.size and columns.indices.size:
            y[number] = pool(xp, X[int(image)], rows, columns)
    return y


# Version 10 shifts nothing by half an element.
op("RoiAlign", since=10, host=(1, 2), without=["coordinate_transformation_mode"])(
    functools.partial(roi_align, coordinate_transformation_mode="output_half_pixel")
)


def samples(side: Side, exact: Side, bins: int, ratio: int, length: int) -> Samples:
    """Return the samples of an axis: ``ratio`` in every bin, or as many as it has elements.

    Args:
        side: A region's, in its dtype, which decides how many samples there are, and which are
            outside: an ulp less would be another answer.
        exact: The same in float64, the weights' type: beside a place the last digits of its
            fraction are lost.
        bins: How many.
        ratio: Samples of a bin; 0 if their number is not given.
        length: Of the image along the axis.
    """
    count = ratio or max(math.ceil(side.extent / bins), 0)
    at = side.places(bins, count)
    inside = (at >= -1) & (at <= length)
    at = exact.places(bins, count)
    at = np.clip(at, 0, length - 1)
    low = np.floor(at)
    weights = [(low + 1 - at) * inside, (at - low) * inside]
    indices = [low, np.minimum(low + 1, length - 1)]
    return Samples(
        np.concatenate(indices, axis=1).astype(np.int64), np.concatenate(weights, axis=1)
    )


def mean(xp: Namespace, image: Array, rows: Samples, columns: Samples) -> Array:
    """Return the mean of each bin of an image (C, H, W)."""
    part = image[:, rows.span, columns.span]
    vertical, horizontal = (
        xp.asarray(weight_matrix(axis).astype(image.dtype)) for axis in (rows, columns)
    )
    return xp.matmul(xp.matmul(vertical, part), horizontal.T)


def weight_matrix(axis: Samples) -> Array:
    """Return the weight of each element of the axis' span in each bin, (bins, span)."""
    span = axis.span
    matrix = np.zeros((len(axis.indices), span.stop - span.start), axis.weights.dtype)
    bins = np.arange(len(axis.indices))[:, None]
    np.add.at(matrix, (bins, axis.indices - span.start), axis.weights)
    return matrix / (axis.indices.shape[1] // 2)


def maximum(xp: Namespace, image: Array, rows: Samples, columns: Samples) -> Array:
    """Return the greatest weighted element of each bin of an image (C, H, W).

    Weights are not negative, so the maximum over rows can be taken before the columns' weights.
    """
    part = image[:, :, columns.span]
    tall = xp.take(part, xp.asarray(rows.indices), axis=1)
    tall = xp.max(tall * xp.asarray(rows.weights.astype(image.dtype))[..., None], axis=2)
    wide = xp.take(tall, xp.asarray(columns.indices - columns.span.start), axis=2)
    return xp.max(wide * xp.asarray(columns.weights.astype(image.dtype)), axis=3)
