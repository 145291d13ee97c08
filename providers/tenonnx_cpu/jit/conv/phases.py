"""Phases of an image put side by side: the last step of a transposed convolution."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.pool import parallel


@parallel
def interleave_lines(arguments: Any, task: Any, worker: Any) -> None:
    """Writes some lines of one channel of the result."""
    x, y, sizes = arguments
    stride, top, out_height, together = sizes[0], sizes[2], sizes[6], sizes[8]
    bands = -(-out_height // together)
    channel, first = task // bands, task % bands * together
    for line in range(first, min(out_height, first + together)):
        place = line + top
        start = ((channel * stride + place % stride) * sizes[1]) * sizes[4] + place // stride
        target = (channel * out_height + line) * sizes[7]
        interleave(x, start, y[target : target + sizes[7]], sizes)


@helper
def interleave(x: Any, start: Any, line: Any, sizes: Any) -> None:
    """Writes one line: every phase to each ``stride``-th element."""
    stride, left, height, width = sizes[1], sizes[3], sizes[4], sizes[5]
    for phase in range(stride):
        skipped = 1 if phase < left else 0
        begin = skipped * stride + phase - left
        target = line[begin::stride]
        source = x[(start + phase * height) * width + skipped :][: target.size]
        for i in range(target.size):
            target[i] = source[i]


@kernel((In(f32, 1), Out(f32, 1), In(i64, 1), size))
def interleave_f32(x, y, sizes, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Puts phases (planes, stride_y, stride_x, height, width) together as (planes, Y, X).

    Args:
        x: The phases.
        y: The result; element Y, X of it is the one at ``Y + top, X + left`` of all together.
        sizes: ``stride_y, stride_x, top, left, height, width``, with ``top`` and ``left`` less than
            the strides; lines and columns of the result, lines per task, and tasks.
        threads: How many threads to use.
    """
    interleave_lines((x, y, sizes), sizes[9], threads)
