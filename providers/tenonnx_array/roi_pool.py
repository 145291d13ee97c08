"""Maxima over regions of interest: MaxRoiPool."""

from __future__ import annotations

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation

table = OperatorTable()
op = table.op


@op("MaxRoiPool", host=(1,), shapes="X: N C H W; rois: R 5")
def max_roi_pool(
    xp: Namespace,
    X: Array,
    rois: Array,
    *,
    pooled_shape: tuple[int, ...],
    spatial_scale: float = 1.0,
) -> Array:
    """Return the maxima of a grid of bins laid over each region, (len(rois), C, *pooled_shape).

    Corners are scaled, rounded half away from zero, and inclusive; a region is at least one pixel
    wide and high. Bins overlap by the pixels that they share, and an empty one, outside of the
    image, is 0. See https://arxiv.org/abs/1504.08083.

    Raises:
        ValueError: A batch index out of range, or shapes that do not fit.
    """
    if X.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5 or len(pooled_shape) != 2:
        raise ValueError(
            f"expected X of 4 axes, rois of shape (number, 5) and a pooled_shape of 2, found "
            f"shapes {X.shape} and {rois.shape} and {list(pooled_shape)}"
        )
    batch = rois[:, 0].astype(np.int64)
    if np.any((batch < 0) | (batch >= X.shape[0])):
        raise ValueError(
            f"expected batch indices in [0, {X.shape[0] - 1}], found {batch.min()} to {batch.max()}"
        )
    scaled = rois[:, 1:].astype(np.float32) * np.float32(spatial_scale)
    corners = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int64)
    shape = (len(rois), X.shape[1], *pooled_shape)
    check_allocation(xp, shape, X.dtype)
    y = xp.zeros(shape, X.dtype)
    for region, image, (left, top, right, bottom) in zip(y, batch, corners, strict=True):
        # Rows first: the bins of one band share them, and are maxima of what is left.
        bands = xp.zeros((pooled_shape[0], *X.shape[1::2]), X.dtype)
        for band, rows in zip(bands, bins(top, bottom, pooled_shape[0], X.shape[2]), strict=True):
            if rows.start < rows.stop:
                band[:] = xp.max(X[image, :, rows], axis=1)
        for j, columns in enumerate(bins(left, right, pooled_shape[1], X.shape[3])):
            if columns.start < columns.stop:
                region[:, :, j] = xp.max(bands[:, :, columns], axis=2).T
    return y


def bins(first: int, last: int, count: int, size: int) -> list[slice]:
    """Cut the pixels ``first`` to ``last`` into ``count`` bins, as far as they are in the image."""
    step = np.float32(max(last - first + 1, 1)) / np.float32(count)
    edges = np.arange(count + 1, dtype=np.float32) * step
    starts = np.clip(np.floor(edges[:-1]).astype(np.int64) + first, 0, size)
    stops = np.clip(np.ceil(edges[1:]).astype(np.int64) + first, 0, size)
    return [slice(*pair) for pair in zip(starts.tolist(), stops.tolist(), strict=True)]
