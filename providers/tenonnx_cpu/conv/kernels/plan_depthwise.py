"""The tasks of windows that slide over one channel at a time, as numbers."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.conv.kernels import DEPTHWISE_FIELDS, LINE_ALIGNMENT_FLOATS, MAX_TASK_PRODUCTS
from tenonnx_cpu.conv.kernels.taps_seen import TAPS_SEEN, first_seen, taps_seen
from tenonnx_cpu.conv.kernels.windows import WINDOW_SIZES, Geometry, store
from tenonnx_cpu.jit.compiling import Contract, Out, helper, i64, kernel, size
from tenonnx_cpu.jit.vectors.named import tuple_of

DepthwiseNumbers = tuple_of("DepthwiseNumbers", DEPTHWISE_FIELDS)

# Elements of a channel of the result from which on it is cut into bands.
MIN_BANDED_ELEMENTS = 1 << 10

# Floats of planes at most, so that they stay in the first-level cache.
MAX_CHANNEL_FLOATS = 5 << 10


@helper
def bands_of(batch: Any, w: Any, threads: Any) -> Any:
    """Return into how many bands of lines large results are cut."""
    if threads == 1 or w.out_height * w.out_width <= MIN_BANDED_ELEMENTS:
        return 1
    return max(1, min(2 * threads // batch, w.out_height // 8))


@kernel(
    (size, size, size, WINDOW_SIZES, TAPS_SEEN, size, size, size, Out(i64, 1), Out(i64, 1)),
    Contract(
        launch="sizes are positive; numbers has one for each of DEPTHWISE_FIELDS, and offsets one "
        "for each tap",
        captured=False,
    ),
)
def plan_depthwise(  # type: ignore[no-untyped-def] # the signature has them
    batch, channels, rows, windows, taps, variant, unrolled, threads, numbers, offsets
):
    """Write what ``tenonnx_cpu.conv.depthwise.depthwise_layout`` returns."""
    w, seen = Geometry(*windows), taps_seen(taps)
    line = -(-(w.out_width + seen.columns) // LINE_ALIGNMENT_FLOATS) * LINE_ALIGNMENT_FLOATS
    lines = max(1, MAX_CHANNEL_FLOATS // (line * seen.planes) - seen.reach)
    lines = -(-w.out_height // -(-w.out_height // lines))
    multiple = rows // channels
    # A thread should find in its cache what it wrote before: of large images bands of all
    # channels, as convolutions cut them, and channels of small ones.
    together, bands = channels, bands_of(batch, w, threads)
    if threads > 1 and bands == 1:
        together = min(channels, -(-batch * channels // threads))
        if batch * channels < 4 * threads:
            bands = min(-(-w.out_height // lines), -(-4 * threads // (batch * channels)))
    each = max(1, multiple * seen.taps * w.out_height * w.out_width)
    together = min(together, max(1, MAX_TASK_PRODUCTS // each))
    bands = max(bands, -(-each // MAX_TASK_PRODUCTS))
    lines = min(lines, -(-w.out_height // bands))
    plane = (lines + seen.reach) * line
    values = DepthwiseNumbers(
        tasks=batch * -(-channels // together) * bands, work=plane * seen.planes + 64, batch=batch,
        channels=channels, multiple=multiple, task_channels=together, height=w.height,
        width=w.width, out_height=w.out_height, out_width=w.out_width, stride_y=w.stride_y,
        stride_x=w.stride_x, top=w.top, left=-w.left, taps=seen.taps, bands=bands, plane=plane,
        line=line, reach=seen.reach, task_height=lines, variant=variant, unrolled=unrolled,
    )  # fmt: skip
    store(numbers, values)
    for tap in range(seen.taps):
        offsets[tap] = 4 * first_seen(seen, tap, plane, line)
