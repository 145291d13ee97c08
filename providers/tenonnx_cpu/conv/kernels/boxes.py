"""Boxes that do not overlap a better one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import look, parallel

# Pairs of boxes that are compared before the run can be stopped: some milliseconds.
MAX_COMPARED_PAIRS = 1 << 22

# Boxes that are compared before, whatever is kept.
AT_ONCE = 1 << 10


@parallel
def suppress_some(arguments: Any, task: Any, worker: Any) -> None:
    """Select from some of the boxes."""
    sides, overlap, kept, count, first, last = arguments
    found = count[0]
    for box in range(first, last):
        if found == kept.size:
            break
        if is_apart(sides, box, kept[:found], overlap[0]):
            kept[found] = box
            found += 1
    count[0] = found


@kernel(
    (In(f32, 2), In(f32, 1), Out(i64, 1), Out(i64, 1), size),
    Contract(
        launch="four numbers per box, a score per class and box",
        values="counts and thresholds are one number each",
        captured=False,
    ),
)
def suppress(sides, overlap, kept, count, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Select boxes from the best one on.

    Args:
        sides: Low x and y, high x and y, and areas, (5, boxes), the best box first.
        overlap: Above which share of their union a box goes, one number.
        kept: Takes the places of as many boxes at most as it has room for.
        count: Takes how many these are.
        threads: Not used.
    """
    count[0], first = 0, 0
    while first < sides.shape[1] and count[0] < kept.size:
        if first:
            look()
        last = min(sides.shape[1], first + max(1, MAX_COMPARED_PAIRS // (count[0] + AT_ONCE)))
        suppress_some((sides, overlap, kept, count, first, last), 1, 1)
        first = last


@helper
def is_apart(sides: Any, box: Any, kept: Any, overlap: Any) -> Any:
    """Return whether a box overlaps none of those that are kept."""
    low_x, low_y, high_x, high_y, area = sides[0], sides[1], sides[2], sides[3], sides[4]
    for i in range(kept.size):
        # Unsigned: what might be negative is told apart at every index.
        other = np.uint64(kept[i])
        width = min(high_x[other], high_x[box]) - max(low_x[other], low_x[box])
        height = min(high_y[other], high_y[box]) - max(low_y[other], low_y[box])
        if width > 0 and height > 0:
            shared = width * height
            if shared / (area[other] + area[box] - shared) > overlap:
                return False
    return True
