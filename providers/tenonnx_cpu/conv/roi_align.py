"""RoiAlign of float32, by means."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.conv.kernels import MAX_REGION_SAMPLES
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, share_of
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

ALIGN = JitKernel("conv.roi_align", "align_regions")

# Floats that a worker needs at most, some megabytes.
MAX_REGION_FLOATS = 1 << 21


@specialize("RoiAlign")
def specialize_roi_align(site: Site, plain: Call) -> Call | None:
    """Take means of samples."""
    new = (site.node.version or 10) >= 16
    mode = site.attribute("coordinate_transformation_mode", "half_pixel")
    ratio = site.attribute("sampling_ratio", 0)
    bins = site.attribute("output_height", 1), site.attribute("output_width", 1)
    known = mode in ("half_pixel", "output_half_pixel") and 0 <= ratio <= MAX_REGION_SAMPLES
    if site.attribute("mode", "avg") != "avg" or not known or min(bins) < 1:
        return None
    ALIGN.request()
    how = *bins, ratio, int(new and mode == "half_pixel")
    scale = float(site.attribute("spatial_scale", 1.0))
    return Capturable(functools.partial(_aligned, how, scale, site.threads, plain))


@cacheable
def _aligned(
    how: tuple[int, int, int, int], scale: float, threads: int, plain: Call, x: NDArray,
    rois: NDArray, images: NDArray,
) -> Any:  # fmt: skip
    run = ALIGN.run
    fits = x.dtype == rois.dtype == F32 and images.dtype == np.int64 and x.ndim == 4 and x.size
    if run is None or not fits or not images.size or rois.shape != (images.size, 4):
        return plain(x, rois, images)
    (_, _, height, width), (rows, columns, *_) = x.shape, how
    share = share_of(rows * height + columns * width + width + 2 * (rows + columns))
    if share > MAX_REGION_FLOATS:
        return plain(x, rois, images)
    y, team = empty((images.size, x.shape[1], rows, columns)), min(threads, images.size)
    memory, wrong = pieces(((share * team,), np.float32), ((1,), np.int64))
    numbers = frozen(np.array([*x.shape, *how, share], np.int64))
    arrays = contiguous(x).reshape(-1), contiguous(rois).reshape(-1), contiguous(images).reshape(-1)
    arguments = (*arrays, scale, y.reshape(-1), memory, wrong, numbers, team)
    return Launch(run, arguments, y, refusal=wrong, otherwise=plain)
