"""GridSample of float32 and float64."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.conv.kernels import GRID_POINTS, MAX_GRID_TAPS
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, worker_shares
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

SAMPLE = JitKernel("conv.grid", "sample_grid")

# Bytes of an element's place and weight at most.
GRID_TAP_BYTES = 16

SAMPLED_DTYPES = (F32, np.dtype(np.float64))

TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


@specialize("GridSample")
@specialize("GridSample", domain="com.microsoft")
def specialize_grid_sample(site: Site, plain: Call) -> Call | None:
    """Take images and volumes, whose borders are not reflected."""
    default = "bilinear" if (site.node.version or 16) < 20 else "linear"
    taps = TAPS.get(site.attribute("mode", default))
    padding = site.attribute("padding_mode", "zeros")
    if taps is None or padding not in ("zeros", "border"):
        return None
    SAMPLE.request()
    how = taps, bool(site.attribute("align_corners", 0)), padding == "border"
    return Capturable(functools.partial(_sampled, how, site.threads, plain))


@cacheable
def _sampled(
    how: tuple[int, bool, bool], threads: int, plain: Call, x: NDArray, grid: NDArray
) -> Any:
    run, rank = SAMPLE.run, x.ndim - 2
    fits = (
        x.dtype == grid.dtype
        and x.dtype in SAMPLED_DTYPES
        and grid.ndim == x.ndim
        and rank in (2, 3)
    )
    if run is None or not fits or not x.size or not grid.size:
        return plain(x, grid)
    if grid.shape[-1] != rank or len(grid) != len(x) or how[0] ** rank > MAX_GRID_TAPS:
        return plain(x, grid)
    y = empty((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    numbers, team = _cut(how, x.shape, grid.shape, threads)
    (memory,) = pieces(worker_shares(GRID_TAP_BYTES * GRID_POINTS * MAX_GRID_TAPS, team, np.uint8))
    arrays = (contiguous(each).reshape(-1).view(np.uint8) for each in (x, grid, y))
    return Launch(run, (*arrays, memory, numbers, x.itemsize, team), y)


@functools.lru_cache(maxsize=64)
def _cut(
    how: tuple[int, bool, bool], x: tuple[int, ...], grid: tuple[int, ...], threads: int
) -> tuple[NDArray, int]:
    """Return the kernel's numbers, and how many threads are of use."""
    points, rank = math.prod(grid[1:-1]), len(x) - 2
    blocks = -(-points // GRID_POINTS)
    size = *((1,) if rank == 2 else ()), *x[2:]
    numbers = [*x[:2], points, blocks, rank, *size, math.prod(size), how[0], how[0] ** rank]
    return frozen(np.array([*numbers, *how[1:]], np.int64)), min(threads, len(grid) * blocks)
