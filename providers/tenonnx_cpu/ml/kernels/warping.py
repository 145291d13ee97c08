"""The cheapest path through a matrix of costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i32, i64, kernel, u8

# The ways to a point: from the one before in both axes, in the first, in the second.
BOTH, FIRST, SECOND = range(3)


@helper
def add_costs(costs: Any, totals: Any, came: Any) -> None:
    """Write by which way each point is reached at the least cost, from zeros around the matrix."""
    columns = costs.shape[1]
    for c in range(columns + 1):
        totals[c] = np.float32(np.inf) if c else np.float32(0)
        came[0, c] = SECOND
    for r in range(costs.shape[0]):
        both, second = totals[0], np.float32(np.inf)
        totals[0] = second
        came[r + 1, 0] = FIRST
        for c in range(columns):
            first = totals[c + 1]
            way, least = SECOND, second
            if both < first and both < second:
                way, least = BOTH, both
            elif first < both and first < second:
                way, least = FIRST, first
            came[r + 1, c + 1] = way
            second = costs[r, c] + least
            totals[c + 1], both = second, first


@kernel(
    (In(f32, 2), Out(f32, 1), Out(u8, 2), Out(i32, 2), Out(i64, 1)),
    Contract(
        launch="totals and ways have a column more than costs, ways a row more; the path has a "
        "column for each row and column of costs",
        captured=False,
    ),
)
def warp(costs, totals, came, path, steps):  # type: ignore[no-untyped-def] # the signature has them
    """Write the cheapest path from the first to the last point, and how many points it has.

    Args:
        costs: Of each point.
        totals: Memory for the costs of a row's points.
        came: Memory for the ways to all points.
        path: The points' places in both axes, in the last columns.
        steps: How many they are.
    """
    add_costs(costs, totals, came)
    r, c, place = i64(costs.shape[0]), i64(costs.shape[1]), i64(path.shape[1])
    while r > 0 or c > 0:
        place -= 1
        path[0, place], path[1, place] = r - 1, c - 1
        way = came[r, c]
        r -= 0 if way == SECOND else 1
        c -= 0 if way == FIRST else 1
    steps[0] = path.shape[1] - place
