"""The tasks of a convolution whose products have places as rows, as numbers."""

from __future__ import annotations

from tenonnx_cpu.conv.kernels import PIXELS_FIELDS
from tenonnx_cpu.conv.kernels.task_split import task_part
from tenonnx_cpu.conv.kernels.windows import (
    WINDOW_SIZES,
    geometry_of,
    is_direct,
    is_line,
    is_padded,
    store,
)
from tenonnx_cpu.jit.compiling import Contract, Out, i64, kernel, size
from tenonnx_cpu.jit.vectors.named import tuple_of
from tenonnx_cpu.matmul.kernels.tile import COLUMNS

PixelsNumbers = tuple_of("PixelsNumbers", PIXELS_FIELDS)


@kernel(
    (size, size, size, WINDOW_SIZES, size, size, size, Out(i64, 1), Out(i64, 1)),
    Contract(
        launch="sizes are positive; numbers has one for each of PIXELS_FIELDS, and offsets one for "
        "each number that a place sees",
        captured=False,
    ),
)
def plan_pixels(  # type: ignore[no-untyped-def] # the signature has them
    batch, channels, rows, windows, threads, from_last, to_last, numbers, offsets
):
    """Write what ``tenonnx_cpu.conv.pixels.pixels_layout`` returns."""
    w = geometry_of(windows)
    wide = channels if from_last else 1
    part = task_part(batch, rows, w.out_height, w.out_width, threads, is_line(w))
    across = -(-part.rows // COLUMNS) * COLUMNS
    copied = is_padded(w) and not is_direct(w)
    padded, plane = w.width * wide, w.height * w.width * wide
    if copied:
        padded = (w.left + w.width + max(0, w.right)) * wide
        plane = ((part.height - 1) * w.stride_y + (w.kernel_y - 1) * w.step_y + 1) * padded
    planes = channels // wide
    sums = planes * plane + 64 if copied else 0
    work = -(-(sums + (0 if to_last else COLUMNS * (part.width + 16))) // 16) * 16
    strips = -(-w.out_height // part.height) * -(-w.out_width // part.width)
    values = PixelsNumbers(
        tasks=batch * strips * -(-rows // across), work=work, rows=rows, planes=planes,
        height=w.height, line=w.width * wide, out_height=w.out_height, out_width=w.out_width,
        stride_y=w.stride_y, pixel=w.stride_x * wide, top=w.top, left=w.left * wide,
        padded=padded, taps_y=(w.kernel_y - 1) * w.step_y + 1, plane=plane, copied=int(copied),
        depth=channels * w.kernel_y * w.kernel_x, last=int(to_last), task_rows=across,
        task_height=part.height, task_width=part.width, sums=sums,
    )  # fmt: skip
    store(numbers, values)
    # Bytes from the first number that a place sees to each of them: channels side by side for each
    # tap, or taps for each channel.
    taps = w.kernel_y * w.kernel_x
    for y in range(w.kernel_y):
        for x in range(w.kernel_x):
            tap, start = y * w.kernel_x + x, y * w.step_y * padded + x * w.step_x * wide
            for channel in range(channels):
                if from_last:
                    offsets[tap * channels + channel] = 4 * (start + channel)
                else:
                    offsets[channel * taps + tap] = 4 * (start + channel * plane)
