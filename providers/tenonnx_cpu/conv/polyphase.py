"""The phases of a transposed convolution: weights of each, and how they become the result.

With a stride s and a kernel of K taps, place ``s * j + r`` of the whole result is the sum over t of
``x[j - t] * w[s * t + r]``: a convolution with ``ceil(K / s)`` taps for each of the phases r.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.layout import fixed
from tenonnx_cpu.kernel_selection import NDArray

LINES_PER_TASK = 64


def phases_of(w: NDArray, group: int, strides: tuple[int, ...]) -> NDArray:
    """Return weights (C, M / group, kernel, ...) as (M * phases, C / group, taps, ...).

    Tap ``a`` of phase ``r`` is the kernel's ``stride * (taps - 1 - a) + r``, or 0 if it has none.
    """
    channels, rows, *kernel = w.shape
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    more = [t * s - k for t, s, k in zip(taps, strides, kernel, strict=True)]
    w = np.pad(w, [(0, 0), (0, 0), *((0, extra) for extra in more)])
    split = [size for pair in zip(taps, strides, strict=True) for size in pair]
    w = w.reshape(group, channels // group, rows, *split)
    rank = len(kernel)
    w = np.flip(w, tuple(3 + 2 * axis for axis in range(rank)))
    order = (0, 2, *(4 + 2 * axis for axis in range(rank)), 1, *(3 + 2 * a for a in range(rank)))
    shape = (group * rows * math.prod(strides), channels // group, *taps)
    return np.ascontiguousarray(w.transpose(order).reshape(shape))


@dataclass(frozen=True)
class PhaseLayout:
    """A transposed convolution of images of one size.

    Attributes:
        pads: Of the convolution that makes the phases, at the begin and the end of each axis.
        output: The result's shape.
        numbers: What ``PHASE_FIELDS`` name; ``None`` where one phase is the result.
    """

    pads: tuple[int, ...]
    output: tuple[int, ...]
    numbers: NDArray | None


def cut_of(
    windows: Windows, strides: tuple[int, ...], lengths: tuple[int, ...], planes: tuple[int, int]
) -> PhaseLayout | None:
    """Return how a result is put together; ``None`` if padding takes more than the first tap.

    Args:
        windows: Of the transposed convolution.
        strides: Phases along each axis.
        lengths: Of the image's axes.
        planes: How many results there are, and channels of each.
    """
    begins, ends, firsts, counts = [], [], [], []
    axes = zip(windows.size, windows.kernel, windows.begins, strides, lengths, strict=True)
    for size, kernel, begin, stride, length in axes:
        # Whole places that the padding takes away at the beginning need not be computed.
        whole, first = divmod(begin, stride)
        count = -(-(first + size) // stride)
        begins.append(-(-kernel // stride) - 1 - whole)
        ends.append(count - length + whole)
        firsts.append(first)
        counts.append(count)
    if min(*begins, *ends) < 0:
        return None
    pads, output = (*begins, *ends), (*planes, *windows.size)
    if math.prod(strides) == 1:
        return PhaseLayout(pads, output, None)
    flat = 3 - len(strides)
    one, zero = (1,) * flat, (0,) * flat
    slices, high, _ = (*one, *windows.size)
    values = (
        *one, *strides, *zero, *firsts, *one, *counts, *one, *windows.size, LINES_PER_TASK,
        math.prod(planes) * slices * -(-high // LINES_PER_TASK),
    )  # fmt: skip
    return PhaseLayout(pads, output, fixed(values))
