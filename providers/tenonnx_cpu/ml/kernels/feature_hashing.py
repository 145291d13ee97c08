"""Numbers summed by bucket."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel


@parallel
def sum_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Do some rows."""
    places, numbers, y, refused, grain = arguments
    for row in range(task * grain, min(y.shape[0], (task + 1) * grain)):
        line = y[row]
        for bucket in range(line.size):
            line[bucket] = 0
        for i in range(places.shape[1]):
            place = places[row, i]
            if place < 0:
                place += line.size
            if place < 0 or place >= line.size:
                refused[0] = 1
                return
            line[place] += np.float32(numbers[row, i])


@kernel(
    (In(i64, 2), In(i64, 2), Out(f32, 2), Out(u8, 1), size, size),
    Contract(
        launch="there is a place for each number, and a row of sums for each row of them",
        values="places are below the number of sums: the kernel looks, and says if not",
        captured=False,
    ),
)
def sum_buckets(places, numbers, y, refused, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write the sums of each row's numbers that have the same place.

    Args:
        places: Where each number belongs, counted from the end if below 0.
        numbers: What is summed, as float32.
        y: The sums.
        refused: 1 if there is no such place.
        grain: Rows of a task.
        threads: How many threads to use.
    """
    refused[0] = 0
    sum_rows((places, numbers, y, refused, grain), -(-y.shape[0] // grain), threads)
