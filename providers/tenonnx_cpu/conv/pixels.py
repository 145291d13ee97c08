"""Tasks of a convolution, whose products have places as rows and channels as columns.

Channels of the result are the lanes of vectors, so that a few places fill as much of a tile as
many, and a result may have its channels last. What places see is read where it is, number by
number: of images with channels first or last. Only padded images are copied, a band at a time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.provider import HOST
from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.kernels import PIXELS_FIELDS
from tenonnx_cpu.conv.layout import NO_KERNELS, ConvLayout, planned, sizes_of
from tenonnx_cpu.conv.padding_taps import Reached, named_taps, taken
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import NDArray

if TYPE_CHECKING:
    from tenonnx.weights.weight import Weight

PLAN_PIXELS = JitKernel("conv.plan_pixels", "plan_pixels")

# Channels side by side in packed weights.
PANEL_CHANNELS = 2 * cpu().lanes


def packed(
    weight: Weight, panel: int, taps: Reached = None, channels_last: bool = False
) -> NDArray:
    """Return weights ``(K, C, *)`` as panels of channels, flat, kept by their registry.

    A panel has a row for each number that a place sees, in the order in which its image has them;
    the last one has zeros for channels that there are not.

    Args:
        weight: The weights.
        panel: Channels of a panel.
        taps: Which of the kernel's taps there are.
        channels_last: Whether images have their channels last.
    """

    def pack() -> NDArray:
        w = taken(weight.on(HOST), taps)
        if channels_last:
            w = w.transpose(0, *range(2, w.ndim), 1)
        panels = -(-len(w) // panel)
        made = np.zeros((panels * panel, w[0].size), np.float32)
        made[: len(w)] = w.reshape(len(w), -1)
        made = made.reshape(panels, panel, -1)
        return np.ascontiguousarray(made.transpose(0, 2, 1))

    order = "last" if channels_last else "first"
    made = weight.derive(f"conv-panels:{panel}:{order}:{named_taps(taps)}", pack)
    return made.on(HOST).reshape(-1)  # type: ignore[no-any-return]  # the host's are numpy's


def pixels_layout(
    shape: tuple[int, ...],
    rows: int,
    windows: Windows,
    threads: int,
    from_last: bool,
    to_last: bool,
) -> ConvLayout:
    """Return how to convolve images ``(N, C, H, W)`` with ``rows`` kernels.

    Args:
        shape: Of the images.
        rows: Channels of the result.
        windows: What places see.
        threads: How many to use at most.
        from_last: Whether images have their channels last.
        to_last: Whether the result has.
    """
    assert PLAN_PIXELS.run is not None, NO_KERNELS
    numbers = np.empty(len(PIXELS_FIELDS), np.int64)
    offsets = np.empty(shape[1] * math.prod(windows.kernel), np.int64)
    PLAN_PIXELS.run(
        *shape[:2], rows, *sizes_of(windows), threads, from_last, to_last, numbers, offsets
    )
    return planned(numbers, threads, (shape[0], rows, *windows.output), offsets)
