"""The tasks of windows that slide over channels side by side, as numbers."""

from __future__ import annotations

from tenonnx_cpu.conv.kernels import CHANNELS_FIELDS, MAX_VECTOR_CHANNELS, TASKS_PER_THREAD
from tenonnx_cpu.conv.kernels.windows import WINDOW_SIZES, Geometry, store
from tenonnx_cpu.jit.compiling import Contract, Out, i64, kernel, size
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.named import tuple_of

ChannelsNumbers = tuple_of("ChannelsNumbers", CHANNELS_FIELDS)

# Vectors of places of the image at most, so that they stay in the second-level cache.
MAX_SEEN_VECTORS = 1536

# Floats of the lines that ``MAX_VECTOR_CHANNELS`` channels see, so that they stay in the
# first-level cache.
MAX_LINE_FLOATS = 5 << 10

# Floats of all channels of the lines that a task sees, so that they do as well.
MAX_SEEN_FLOATS = 96 << 10


@kernel(
    (size, size, WINDOW_SIZES, size, size, size, size, Out(i64, 1)),
    Contract(
        launch="sizes are positive; numbers has one for each of CHANNELS_FIELDS", captured=False
    ),
)
def plan_channels(  # type: ignore[no-untyped-def] # the signature has them
    batch, channels, windows, variant, threads, from_last, to_last, numbers
):
    """Write what ``tenonnx_cpu.conv.depthwise.channels_layout`` returns."""
    w = Geometry(*windows)
    kernel_, stride, width = w.kernel_y, w.stride_y, w.width
    seen = min(MAX_SEEN_VECTORS // width, MAX_SEEN_FLOATS // (width * channels))
    strips = -(-w.out_height // max(1, (seen - kernel_) // stride + 1))
    lines, groups = -(-w.out_height // strips), -(-channels // MAX_VECTOR_CHANNELS)
    wanted = TASKS_PER_THREAD * threads if threads > 1 else 1
    together = MAX_VECTOR_CHANNELS * -(-groups // min(groups, -(-wanted // (batch * strips))))
    sums = 0 if from_last else ((lines - 1) * stride + kernel_) * width + MAX_VECTOR_CHANNELS
    made = 0 if to_last else lines * w.out_width + MAX_VECTOR_CHANNELS
    cached = lines
    if LANES < MAX_VECTOR_CHANNELS and from_last and to_last:
        most = (MAX_LINE_FLOATS // (MAX_VECTOR_CHANNELS * width) - kernel_) // stride + 1
        cached = min(lines, max(1, most))
    values = ChannelsNumbers(
        tasks=batch * -(-w.out_height // lines) * -(-channels // together),
        work=MAX_VECTOR_CHANNELS * (sums + made), batch=batch, channels=channels, height=w.height,
        width=width, out_width=w.out_width, out_height=w.out_height, top=w.top, left=w.left,
        stride=stride, kernel=kernel_, task_channels=together, task_height=lines, variant=variant,
        from_last=int(from_last), to_last=int(to_last), sums=sums, together=cached,
    )  # fmt: skip
    store(numbers, values)
