"""Tasks of work on one channel at a time: depthwise convolution and pooling."""

from __future__ import annotations

import math

import numpy as np

from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.kernels import CHANNELS_FIELDS, DEPTHWISE_FIELDS, UNROLLED_WINDOWS
from tenonnx_cpu.conv.layout import NO_KERNELS, ConvLayout, planned, seen_by, sizes_of
from tenonnx_cpu.jit.runtime import JitKernel

PLAN_DEPTHWISE = JitKernel("conv.plan_depthwise", "plan_depthwise")
PLAN_CHANNELS = JitKernel("conv.plan_channels", "plan_channels")


def depthwise_layout(
    shape: tuple[int, ...], rows: int, windows: Windows, threads: int
) -> ConvLayout:
    """Return how to slide windows over each channel of an image ``(N, C, H, W)``."""
    assert PLAN_DEPTHWISE.run is not None, NO_KERNELS
    variant = variant_of(windows)
    if windows.output[0] == 1 and not variant:
        # Of one line of windows nobody knows the stride, and one phase has all of their lines.
        windows = windows._replace(strides=(1, windows.strides[1]))
        variant = variant_of(windows)
    seen = seen_by(windows, phases=True)
    numbers = np.empty(len(DEPTHWISE_FIELDS), np.int64)
    offsets = np.empty(math.prod(windows.kernel), np.int64)
    PLAN_DEPTHWISE.run(
        *shape[:2], rows, *sizes_of(windows), *seen.taps, variant, unrolled(windows), threads,
        numbers, offsets,
    )  # fmt: skip
    output = shape[0], rows, *windows.output
    return planned(numbers, threads, output, offsets, planes=seen.planes)


def variant_of(windows: Windows) -> int:
    """Return the number of windows that have code of their own; 0 if they have none."""
    return unrolled(windows) if windows.strides[0] == windows.strides[1] else 0


def unrolled(windows: Windows) -> int:
    """Return the same for windows that are put together of lines, at any stride of these."""
    (kernel, other), known = windows.kernel, (windows.kernel[1], windows.strides[1])
    square = kernel == other and windows.dilations == (1, 1)
    return 1 + UNROLLED_WINDOWS.index(known) if square and known in UNROLLED_WINDOWS else 0


# Columns of the result, and of the image, up to which vectors of channels are better filled.
NARROW, WIDE = 8, 16


def is_narrow(windows: Windows) -> bool:
    """Return whether rows of images leave vectors mostly empty."""
    return windows.output[1] <= NARROW and windows.size[1] <= WIDE


def channels_layout(
    shape: tuple[int, ...], windows: Windows, threads: int, from_last: bool, to_last: bool
) -> ConvLayout:
    """Return how to slide windows over an image ``(N, C, H, W)``, channels side by side.

    Args:
        shape: Of the images.
        windows: Square ones that have code of their own.
        threads: How many to use at most.
        from_last: Whether images have their channels last.
        to_last: Whether the result has.
    """
    assert PLAN_CHANNELS.run is not None, NO_KERNELS
    numbers = np.empty(len(CHANNELS_FIELDS), np.int64)
    PLAN_CHANNELS.run(
        *shape[:2], *sizes_of(windows), variant_of(windows), threads, from_last, to_last, numbers
    )
    return planned(numbers, threads, (*shape[:2], *windows.output))
