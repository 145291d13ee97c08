"""Convolutions of 3 x 3 with fewer products: how they are cut into tiles, and what weights become.

A tile of m x m results needs (m + 2)^2 products per pair of channels instead of 9 m^2 (Winograd,
Arithmetic Complexity of Computations, 1980). With ``d`` what a tile sees and ``g`` a kernel,

    y = A^T [(G g G^T) * (B^T d B)] A

so that a sum over channels is a matrix product for each of the (m + 2)^2 places of a tile. The
matrices follow from points at which polynomials are evaluated. With those of m = 4, and sums of few
channels at a time, errors are about a plain sum's; 0, 1, -1, 2, -2, which are common, double them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.process.cores import available_cores
from tenonnx.provider import HOST
from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.kernels import WINOGRAD_FIELDS
from tenonnx_cpu.conv.kernels.winograd_matrices import WINOGRAD_CHANNELS, matrices
from tenonnx_cpu.conv.layout import NO_KERNELS, ConvLayout, planned, sizes_of
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import NDArray

if TYPE_CHECKING:
    from tenonnx.weights.weight import Weight

PLAN_WINOGRAD = JitKernel("conv.plan_winograd", "plan_winograd")

# Channels that are summed one after the other: sums of sums are more exact.
DEPTHS = {2: 64, 4: 16}

# Below, transforming tiles takes longer than the products that it saves, or is less exact.
LEAST_CHANNELS = {2: 32, 4: 64}

# Products that a weight must be worth: it takes room, and time to be brought from memory.
#
# With AVX2, weights of a size that processors of that kind rarely keep in a cache take longer; up
# to `MAX_NEAR_NUMBERS` numbers of a tap, a run finds them `NEAR`.
FETCH, NEAR = (72, 16) if cpu().lanes == 8 else (32, 32)

MAX_NEAR_NUMBERS = 1 << 14

# Channels whose products take as long as transforming one.
TRANSFORM = 12

# How many products of bfloat16 take as long as one of float32.
NARROW_SPEED = math.inf if cpu().amx else 2


def tiled(weight: Weight, size: int) -> NDArray:
    """Return a weight's ``transformed``, flat, kept by its registry."""
    made = weight.derive(f"winograd:1:{size}", lambda: transformed(weight.on(HOST), size))
    return made.on(HOST).reshape(-1)  # type: ignore[no-any-return]  # the host's are numpy's


def transformed(w: NDArray, size: int) -> NDArray:
    """Return weights ``(K, C, 3, 3)`` as ``(panels, places, C, PANEL)``, for tiles of a size."""
    from tenonnx.planning.blas import leaving

    rows, channels = w.shape[:2]
    side = matrices(size).weights
    places, panels = np.kron(side, side), -(-rows // WINOGRAD_CHANNELS)
    taps = np.zeros((panels * WINOGRAD_CHANNELS, channels, places.shape[1]))
    taps[:rows] = w.reshape(rows, channels, -1)
    made = np.empty((panels, len(places), channels, WINOGRAD_CHANNELS), np.float32)
    # More of OpenBLAS's threads would wait for another product, in the way of the next run.
    with leaving(available_cores()):
        # The taps are turned, of which there are fewer than places.
        for panel, given in zip(made, np.split(taps, panels), strict=True):
            panel[:] = (places @ given.T.reshape(len(given.T), -1)).reshape(panel.shape)
    return made


def tile_size(
    batch: int, rows: int, channels: int, windows: Windows, *, narrows: bool = False
) -> int:
    """Return the size of tile that costs least; 0 if it is not less than without tiles.

    With ``narrows`` products without tiles are of bfloat16.
    """
    plain = windows.kernel == (3, 3) and windows.strides == windows.dilations == (1, 1)
    if not plain:
        return 0
    (height, width), fetch = windows.output, NEAR if rows * channels <= MAX_NEAR_NUMBERS else FETCH
    costs = {0: 9.0 * (batch * height * width + fetch) / (NARROW_SPEED if narrows else 1)}
    for size, least in LEAST_CHANNELS.items():
        if min(rows, channels) < least:
            continue
        tiles = batch * -(-height // size) * -(-width // size)
        transforms = TRANSFORM / rows + TRANSFORM / channels
        costs[size] = (size + 2) ** 2 * (tiles * (1 + transforms) + fetch)
    return min(costs, key=costs.__getitem__)


def wins_over_bfloat16(rows: int, channels: int) -> bool:
    """Return whether tiles take less than products of bfloat16 for images of a usual size."""
    near = rows * channels <= MAX_NEAR_NUMBERS
    return NARROW_SPEED <= 2 and near and min(rows, channels) >= LEAST_CHANNELS[4]


def winograd_layout(
    shape: tuple[int, ...], rows: int, size: int, windows: Windows, threads: int
) -> ConvLayout:
    """Return how to convolve an image ``(N, C, H, W)`` with ``rows`` kernels by tiles."""
    assert PLAN_WINOGRAD.run is not None, NO_KERNELS
    numbers = np.empty(len(WINOGRAD_FIELDS), np.int64)
    PLAN_WINOGRAD.run(*shape[:2], rows, size, *sizes_of(windows), DEPTHS[size], threads, numbers)
    return planned(numbers, threads, (shape[0], rows, *windows.output))
