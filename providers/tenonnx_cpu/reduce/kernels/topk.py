"""The k greatest or least of each row, kept in a heap."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel


@helper
def is_worse(x: Any, i: Any, y: Any, j: Any) -> Any:
    """Says whether x, at place i, comes after y, at place j; NaN comes last."""
    if x != x or y != y:
        return (x != x) & ((y == y) | (i > j))
    return (x < y) | ((x == y) & (i > j))


@helper
def sink(values: Any, places: Any, count: Any) -> None:
    """Moves the first of a heap down to where none below is worse."""
    x, i = values[0], places[0]
    at = 0
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and is_worse(
            values[child + 1], places[child + 1], values[child], places[child]
        ):
            child += 1
        if not is_worse(values[child], places[child], x, i):
            break
        values[at], places[at] = values[child], places[child]
        at = child
    values[at], places[at] = x, i


@helper
def rise(values: Any, places: Any, at: Any) -> None:
    """Moves the last of a heap up to where none above is less bad."""
    x, i = values[at], places[at]
    while at > 0:
        parent = (at - 1) // 2
        if not is_worse(x, i, values[parent], places[parent]):
            break
        values[at], places[at] = values[parent], places[parent]
        at = parent
    values[at], places[at] = x, i


@helper
def select(x: Any, sign: Any, values: Any, places: Any) -> None:
    """Finds the first of a row in order; the heap, whose first is the worst, is the result."""
    count = values.size
    for i in range(count):
        values[i], places[i] = sign * x[i], i
        rise(values, places, i)
    for i in range(count, x.size):
        value = sign * x[i]
        # Of equals the one that is there comes first.
        if value > values[0] or (values[0] != values[0] and value == value):
            values[0], places[0] = value, i
            sink(values, places, count)
    for last in range(count - 1, 0, -1):
        worst, place = values[0], places[0]
        values[0], places[0] = values[last], places[last]
        sink(values, places, last)
        values[last], places[last] = worst, place
    for i in range(count):
        values[i] = x[places[i]]


@parallel
def select_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Finds the first of some rows."""
    x, values, places, sign, grain = arguments
    for row in range(task * grain, min(x.shape[0], (task + 1) * grain)):
        select(x[row], sign, values[row], places[row])


@kernel(
    (In(f32, 2), Out(f32, 2), Out(i64, 2), size, size, size),
    Contract(values="k is at most the axis, in each run"),
)
def top_k(x, values, places, largest, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Finds the first elements of each row in order, the first of equals first, NaN last.

    Args:
        x: The rows.
        values: The elements, as many as there are columns; at least one.
        places: Where they are.
        largest: The greatest are first, or the least.
        grain: Rows of a task.
        threads: How many threads to use.
    """
    sign = np.float32(1 if largest else -1)
    select_rows((x, values, places, sign, grain), -(-x.shape[0] // grain), threads)
