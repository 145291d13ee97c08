"""Transposed convolution of small images: the phases, then the result of them."""

from __future__ import annotations

import numpy as np

from tenonnx_cpu.conv.kernels.conv import conv_sizes, convolve_part
from tenonnx_cpu.conv.kernels.finish import finish_of
from tenonnx_cpu.conv.kernels.polyphase import interleave_lines, phase_sizes
from tenonnx_cpu.conv.kernels.signature import AFTER, LAYOUT, WINDOWS
from tenonnx_cpu.jit.compiling import In, Out, f32, i64, kernel, size


@kernel(
    (In(f32, 1), In(f32, 1), Out(f32, 1), AFTER, LAYOUT, In(i64, 1), Out(f32, 1), size, size),
    WINDOWS,
)
def conv_transposed_f32(x, w, y, after, layout, phases, memory, place, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Convolve as ``conv_f32``, and put the phases together as ``interleave_f32``.

    Args:
        x: As ``conv_f32`` takes it.
        w: As ``conv_f32`` takes it.
        y: The result.
        after: As ``conv_f32`` takes it.
        layout: As ``conv_f32`` takes it.
        phases: As ``interleave_f32`` takes its numbers.
        memory: Floats to work in.
        place: From where on phases are in it.
        threads: How many threads to use.
    """
    numbers, offsets, panel, planes = layout
    sizes, between = conv_sizes(numbers), phase_sizes(phases)
    made = memory[place:]
    convolve_part(
        (
            x, w, np.intp(made.ctypes.data), finish_of(after), sizes, offsets, panel, planes,
            memory,
        ),
        sizes.tasks,
        threads,
    )  # fmt: skip
    interleave_lines((made, y, between), between.tasks, threads)
