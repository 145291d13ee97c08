"""Phases of an image put side by side: the last step of a transposed convolution."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.conv.kernels import PHASE_FIELDS
from tenonnx_cpu.conv.kernels.signature import WINDOWS
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, inlined, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.named import named

phase_sizes = named("PhaseSizes", PHASE_FIELDS)


@parallel
def interleave_lines(arguments: Any, task: Any, worker: Any) -> None:
    """Write some lines of one slice of one channel of the result."""
    x, y, sizes = arguments
    bands = -(-sizes.out_height // sizes.task_height)
    image, first = task // bands, task % bands * sizes.task_height
    channel, out_slice = image // sizes.out_depth, image % sizes.out_depth
    above, phase_z = divmod(out_slice + sizes.front, sizes.stride_z)
    phases = (channel * sizes.stride_z + phase_z) * sizes.stride_y
    for line in range(first, min(sizes.out_height, first + sizes.task_height)):
        place, phase = divmod(line + sizes.top, sizes.stride_y)
        volume = (phases + phase) * sizes.stride_x * sizes.depth
        start = (volume + above) * sizes.height + place
        target = (image * sizes.out_height + line) * sizes.out_width
        interleave(x, start, y[target : target + sizes.out_width], sizes)


@helper
def interleave(x: Any, start: Any, line: Any, sizes: Any) -> None:
    """Write one line: every phase to each ``stride``-th element."""
    if sizes.stride_x == 2:
        write_pairs(x, start * sizes.width, sizes.depth * sizes.height * sizes.width, line, sizes)
        return
    for phase in range(sizes.stride_x):
        skipped = 1 if phase < sizes.left else 0
        begin = skipped * sizes.stride_x + phase - sizes.left
        target = line[begin :: sizes.stride_x]
        line_of = start + phase * sizes.depth * sizes.height
        source = x[line_of * sizes.width + skipped :][: target.size]
        for i in range(target.size):
            target[i] = source[i]


@inlined
def write_pairs(x: Any, own: Any, apart: Any, line: Any, sizes: Any) -> None:
    """Write one line of two phases, whose elements are side by side."""
    left = sizes.left
    if left:
        line[0] = x[own + apart]
    count = (line.size - left) // 2
    even, odd = x[own + left :][:count], x[own + apart + left :][:count]
    pairs = line[left:]
    for i in range(count):
        pairs[2 * i] = even[i]
        pairs[2 * i + 1] = odd[i]
    if pairs.size > 2 * count:
        pairs[2 * count] = x[own + left + count]


@kernel((In(f32, 1), Out(f32, 1), In(i64, 1), size), WINDOWS._replace(captured=False))
def interleave_f32(x, y, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Put phases (channels, strides of three axes, D, H, W) together as (channels, Z, Y, X).

    Args:
        x: The phases.
        y: The result; element Z, Y, X of it is the one at ``Z + front, Y + top, X + left`` of all
            together.
        numbers: What ``tenonnx_cpu.conv.kernels.PHASE_FIELDS`` says; ``front``, ``top`` and
            ``left`` are less than the strides.
        threads: How many threads to use.
    """
    sizes = phase_sizes(numbers)
    interleave_lines((x, y, sizes), sizes.tasks, threads)
