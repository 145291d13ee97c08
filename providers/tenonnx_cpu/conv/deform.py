"""DeformConv of float32 and float64: samples by a kernel, which an ordinary product weighs."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.deform import deform_conv
from tenonnx_array.windows import Windows
from tenonnx_cpu.buffers import F32, UNREAD, contiguous, empty
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

SAMPLE_TAPS = JitKernel("conv.deform", "sample_taps")

SAMPLED_DTYPES = (F32, np.dtype(np.float64))

ATTRIBUTES = ("dilations", "group", "kernel_shape", "offset_group", "pads", "strides")


@specialize("DeformConv")
def specialize_deform(site: Site, plain: Call) -> Call:
    """Take images."""
    SAMPLE_TAPS.request()
    given = {name: site.attribute(name, None) for name in ATTRIBUTES}
    attributes = tuple((name, value) for name, value in given.items() if value is not None)
    return functools.partial(_deformed, attributes, site.threads, plain)


@cacheable
def _deformed(
    attributes: tuple[tuple[str, Any], ...], threads: int, plain: Call, *arrays: NDArray | None
) -> Any:
    given = [x for x in arrays if x is not None]
    dtype = given[0].dtype
    fits = dtype in SAMPLED_DTYPES and all(x.dtype == dtype for x in given)
    if SAMPLE_TAPS.run is None or not fits or given[0].ndim != 4:
        return plain(*arrays)
    sample = functools.partial(sampled, threads)
    return deform_conv(np, *arrays, **dict(attributes), _sample=sample)


def sampled(
    threads: int, x: NDArray, offset: NDArray, mask: NDArray | None, windows: Windows, groups: int
) -> NDArray | None:
    """Return x (N, C, H, W) where taps are moved to, (N, C, taps, windows); ``None`` for numpy."""
    run, (images, channels), taps = SAMPLE_TAPS.run, x.shape[:2], math.prod(windows.kernel)
    points = math.prod(windows.output)
    if run is None or not x.size or not offset.size:
        return None
    y = empty((images, channels, taps, points), x.dtype)
    numbers = [
        *(images * groups, channels // groups, taps, windows.kernel[1], *x.shape[2:]),
        *(points, windows.output[1], *windows.strides, *windows.dilations, *windows.begins),
        mask is not None,
    ]
    given = (x, offset, UNREAD if mask is None else mask, y)
    arrays = (contiguous(each).reshape(-1).view(np.uint8) for each in given)
    run(*arrays, np.array(numbers, np.int64), x.itemsize, threads)
    return y
