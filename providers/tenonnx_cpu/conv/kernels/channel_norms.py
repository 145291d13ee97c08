"""Channels, or groups of them, normalized by their own mean and deviation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, f64, helper, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel

F = np.float32

# Elements that are summed in float32; the sums of so many are in float64.
FLOAT32_ELEMENTS = 1 << 12


@helper
def moment(x: Any, mean: Any, power: Any) -> Any:
    """Return the mean of what is left of elements, or of its square."""
    total = f64(0)
    for start in range(0, x.size, FLOAT32_ELEMENTS):
        part = x[start : start + FLOAT32_ELEMENTS]
        some = F(0)
        if power == 1:
            for i in range(part.size):
                some += part[i] - mean
        else:
            for i in range(part.size):
                d = part[i] - mean
                some += d * d
        total += f64(some)
    return F(total / x.size)


@parallel
def normalize_group(arguments: Any, task: Any, worker: Any) -> None:
    """Normalize one row."""
    x, y, scale, bias, together, epsilon = arguments
    row = x[task]
    mean = moment(row, F(0), 1)
    factor = F(1) / np.sqrt(moment(row, mean, 2) + epsilon)
    span = row.size // together
    first = task * together % scale.size
    for channel in range(together):
        source = row[channel * span : (channel + 1) * span]
        target = y[task, channel * span : (channel + 1) * span]
        times, plus = factor * scale[first + channel], bias[first + channel]
        for i in range(target.size):
            target[i] = (source[i] - mean) * times + plus


@kernel(
    (In(f32, 2), Out(f32, 2), In(f32, 1), In(f32, 1), size, f32, size),
    Contract(
        plan="num_groups is positive",
        launch="scale and bias have a number per normalized element, or channel",
    ),
)
def normalize_channels(x, y, scale, bias, together, epsilon, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write ``(x - mean) / sqrt(variance + epsilon) * scale + bias``.

    Args:
        x: Rows, each of as many channels as are normalized together.
        y: The result.
        scale: One for every channel; after the last one, rows begin with the first again.
        bias: What is added, one for every channel as of ``scale``.
        together: Channels of a row.
        epsilon: What is added to the variance.
        threads: How many threads to use.
    """
    normalize_group((x, y, scale, bias, together, epsilon), x.shape[0], threads)
