"""Depthwise convolution: every channel by itself, in vectors along its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.conv.kernels import DEPTHWISE_FIELDS
from tenonnx_cpu.conv.kernels.finish import activate_lines, finish_of
from tenonnx_cpu.conv.kernels.planes import pack_planes
from tenonnx_cpu.conv.kernels.signature import CONVOLUTION, WINDOWS
from tenonnx_cpu.conv.kernels.slide import slide_sums
from tenonnx_cpu.conv.kernels.stencil import DIRECT, slide_directly
from tenonnx_cpu.conv.kernels.tasks import channels_of
from tenonnx_cpu.jit.compiling import helper, kernel
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.memory import load_float
from tenonnx_cpu.jit.vectors.named import named

depthwise_sizes = named("DepthwiseSizes", DEPTHWISE_FIELDS)


@parallel
def convolve_channels(arguments: Any, task: Any, worker: Any) -> None:
    """Convolve some channels, or some lines of one; see ``tenonnx_cpu.conv.depthwise``."""
    x, w, y, finish, sizes, offsets, planes, memory = arguments
    packed = memory.ctypes.data + 4 * sizes.work * worker
    item, first, last, begin, end = channels_of(task, sizes)
    for channel in range(first, last):
        image = item * sizes.channels + channel
        source = x.ctypes.data + 4 * image * sizes.height * sizes.width
        for top in range(begin, end, sizes.task_height):
            lines = min(end - top, sizes.task_height)
            seen = source
            if not (DIRECT and sizes.variant):
                seen = packed
                pack_planes(
                    source, 1, top, lines + sizes.reach, 0, sizes, planes, np.float32(0), packed
                )
            for n in range(sizes.multiple):
                row = channel * sizes.multiple + n
                slide(w, y, finish, sizes, offsets, item, row, top, lines, seen)


@helper
def slide(
    w: Any, y: Any, finish: Any, sizes: Any, offsets: Any, item: Any, row: Any, top: Any,
    lines: Any, seen: Any,
) -> None:  # fmt: skip
    """Convolve some lines of a channel for one row of weights.

    ``seen`` is the address of the channel if the kernel is one that reads it there, else of its
    planes.
    """
    image = (item * sizes.channels * sizes.multiple + row) * sizes.out_height
    start = (image + top) * sizes.out_width
    weights, made = w.ctypes.data + 4 * row * sizes.taps, y + 4 * start
    added = finish.residual + 4 * start if finish.residual else 0
    scale, shift = load_float(finish.scale + 4 * row), load_float(finish.shift + 4 * row)
    if DIRECT and sizes.variant:
        slide_directly(
            sizes.variant, seen, sizes.height, sizes.width, top * sizes.stride_y - sizes.top,
            sizes.left, weights, made, added, sizes.out_width, lines,
            scale, shift, finish.low, finish.high,
        )  # fmt: skip
    else:
        slide_sums(
            sizes.unrolled, seen, 4 * sizes.line, offsets.ctypes.data, weights, sizes.taps, made,
            added, sizes.out_width, lines, scale, shift, finish.low, finish.high,
        )  # fmt: skip
    activate_lines(made, 0, 1, lines * sizes.out_width, finish)


@kernel(CONVOLUTION, WINDOWS)
def conv_depthwise(x, w, y, after, layout, memory, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolve as ``tenonnx_cpu.conv.depthwise.depthwise_layout`` says."""
    numbers, offsets, _, planes = layout
    sizes = depthwise_sizes(numbers)
    finish = finish_of(after)
    arguments = (x, w, np.intp(y.ctypes.data), finish, sizes, offsets, planes, memory)
    convolve_channels(arguments, sizes.tasks, threads)
