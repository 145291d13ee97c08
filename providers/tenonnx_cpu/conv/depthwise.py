"""Tasks of work on one channel at a time: depthwise convolution and pooling."""

from __future__ import annotations

import functools

from tenonnx_array.windows import Windows
from tenonnx_cpu.conv.kernels import CHANNELS_FIELDS, DEPTHWISE_FIELDS, UNROLLED_WINDOWS
from tenonnx_cpu.conv.layout import (
    TASKS_PER_THREAD,
    ConvLayout,
    fixed,
    numbers_of,
    places_of,
    seen_by,
)
from tenonnx_cpu.jit.code.cpu import cpu

# The alignment of a plane's line: the floats of a vector.
LINE_ALIGNMENT_FLOATS = 16

# Elements of a channel of the result from which on it is cut into bands.
MIN_BANDED_ELEMENTS = 1 << 10

# Products of a task at most, some milliseconds: runs are stopped between two.
MAX_TASK_PRODUCTS = 1 << 24

# Floats of planes at most, so that they stay in the first-level cache.
PLANES = 5 << 10


@functools.lru_cache(maxsize=1024)
def depthwise_layout(
    shape: tuple[int, ...], rows: int, windows: Windows, threads: int
) -> ConvLayout:
    """Return how to slide windows over each channel of an image ``(N, C, H, W)``."""
    batch, channels = shape[:2]
    out_height, out_width = windows.output
    if out_height == 1 and not variant_of(windows):
        # Of one line of windows nobody knows the stride, and one phase has all of their lines.
        windows = windows._replace(strides=(1, windows.strides[1]))
    seen = seen_by(windows, phases=True)
    planes, reach, taps = seen.planes, seen.reach, len(seen.plane)
    line = -(-(out_width + seen.columns) // LINE_ALIGNMENT_FLOATS) * LINE_ALIGNMENT_FLOATS
    lines = max(1, PLANES // (line * len(planes)) - reach)
    lines = -(-out_height // -(-out_height // lines))
    multiple = rows // channels
    # A thread should find in its cache what it wrote before: of large images bands of all
    # channels, as convolutions cut them, and channels of small ones.
    together, bands = channels, bands_of(batch, windows, threads)
    if threads > 1 and bands == 1:
        together = min(channels, -(-batch * channels // threads))
        if batch * channels < 4 * threads:
            bands = min(-(-out_height // lines), -(-4 * threads // (batch * channels)))
    each = max(1, multiple * taps * out_height * out_width)
    together, bands = (
        min(together, max(1, MAX_TASK_PRODUCTS // each)),
        max(bands, -(-each // MAX_TASK_PRODUCTS)),
    )
    lines = min(lines, -(-out_height // bands))
    plane = (lines + reach) * line
    offsets = fixed(4 * seen.within(plane, line))
    tasks = batch * -(-channels // together) * bands
    work = plane * len(planes) + 64
    numbers = numbers_of(
        DEPTHWISE_FIELDS, batch=batch, channels=channels, multiple=multiple, task_channels=together,
        **places_of(windows), left=-windows.begins[1], taps=taps, bands=bands, plane=plane,
        line=line, reach=reach, task_height=lines, tasks=tasks, work=work,
        variant=variant_of(windows), unrolled=unrolled(windows),
    )  # fmt: skip
    return ConvLayout(
        numbers,
        min(threads, tasks),
        work,
        (batch, rows, out_height, out_width),
        offsets=offsets,
        planes=planes,
    )


def variant_of(windows: Windows) -> int:
    """Return the number of windows that have code of their own; 0 if they have none."""
    return unrolled(windows) if windows.strides[0] == windows.strides[1] else 0


def unrolled(windows: Windows) -> int:
    """Return the same for windows that are put together of lines, at any stride of these."""
    (kernel, other), known = windows.kernel, (windows.kernel[1], windows.strides[1])
    square = kernel == other and windows.dilations == (1, 1)
    return 1 + UNROLLED_WINDOWS.index(known) if square and known in UNROLLED_WINDOWS else 0


def bands_of(batch: int, windows: Windows, threads: int) -> int:
    """Return into how many bands of lines large images are cut."""
    height, width = windows.output
    if threads == 1 or height * width <= MIN_BANDED_ELEMENTS:
        return 1
    return max(1, min(2 * threads // batch, height // 8))


# The most channels that a vector has.
MAX_VECTOR_CHANNELS = 16

# Columns of the result, and of the image, up to which vectors of channels are better filled.
NARROW, WIDE = 8, 16

# Vectors of places of the image at most, so that they stay in the second-level cache.
MAX_SEEN_VECTORS = 1536

# Floats of the lines that ``MAX_VECTOR_CHANNELS`` channels see, so that they stay in the
# first-level cache.
CACHED = 5 << 10

# Floats of all channels of the lines that a task sees, so that they do as well.
MAX_SEEN_FLOATS = 96 << 10


def is_narrow(windows: Windows) -> bool:
    """Return whether rows of images leave vectors mostly empty."""
    return windows.output[1] <= NARROW and windows.size[1] <= WIDE


@functools.lru_cache(maxsize=1024)
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
    batch, channels = shape[:2]
    (height, width), (out_height, out_width) = windows.size, windows.output
    kernel, stride, (top, left) = windows.kernel[0], windows.strides[0], windows.begins
    seen = min(MAX_SEEN_VECTORS // width, MAX_SEEN_FLOATS // (width * channels))
    lines = max(1, (seen - kernel) // stride + 1)
    strips = -(-out_height // lines)
    lines, groups = -(-out_height // strips), -(-channels // MAX_VECTOR_CHANNELS)
    wanted = TASKS_PER_THREAD * threads if threads > 1 else 1
    together = MAX_VECTOR_CHANNELS * -(-groups // min(groups, -(-wanted // (batch * strips))))
    sums = 0 if from_last else ((lines - 1) * stride + kernel) * width + MAX_VECTOR_CHANNELS
    work = MAX_VECTOR_CHANNELS * (
        sums + (0 if to_last else lines * out_width + MAX_VECTOR_CHANNELS)
    )
    tasks = batch * -(-out_height // lines) * -(-channels // together)
    cached = lines
    if cpu().lanes < MAX_VECTOR_CHANNELS and from_last and to_last:
        cached = min(
            lines, max(1, (CACHED // (MAX_VECTOR_CHANNELS * width) - kernel) // stride + 1)
        )
    numbers = numbers_of(
        CHANNELS_FIELDS, batch=batch, channels=channels, height=height, width=width,
        out_height=out_height, out_width=out_width, top=top, left=left, stride=stride,
        kernel=kernel, task_channels=together, task_height=lines,
        variant=variant_of(windows), from_last=int(from_last), to_last=int(to_last), sums=sums,
        work=work, together=cached, tasks=tasks,
    )  # fmt: skip
    return ConvLayout(numbers, min(threads, tasks), work, (batch, channels, out_height, out_width))
