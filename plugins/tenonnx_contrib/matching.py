"""Operators that lay one sequence along another: DynamicTimeWarping, BifurcationDetector."""

from __future__ import annotations

import numpy as np

from tenonnx import Array, Namespace, OperatorTable

table = OperatorTable("com.microsoft")
op = table.op


@op("DynamicTimeWarping", host="all")
def dynamic_time_warping(_: Namespace, costs: Array) -> Array:
    """Return the cheapest path from the first to the last point, ``[2, steps]`` of int32.

    A step goes on in one axis or in both; of equal ways the one in both is taken, then the one
    along the first axis (Sakoe and Chiba 1978).
    """
    costs = costs.reshape(costs.shape[-2:])
    rows, columns = costs.shape
    # The predecessor of a point: 0 the point before in both axes, 1 in the first, 2 in the second.
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    came = np.zeros((rows + 1, columns + 1), np.int8)
    for r in range(1, rows + 1):
        for c in range(1, columns + 1):
            ways = total[r - 1, c - 1], total[r - 1, c], total[r, c - 1]
            if ways[0] < ways[1] and ways[0] < ways[2]:
                came[r, c] = 0
            elif ways[1] < ways[0] and ways[1] < ways[2]:
                came[r, c] = 1
            else:
                came[r, c] = 2
            total[r, c] = costs[r - 1, c - 1] + ways[came[r, c]]
    came[0, :], came[:, 0] = 2, 1  # along the borders there is one way
    path = []
    r, c = rows, columns
    while r > 0 or c > 0:
        path.append((r - 1, c - 1))
        way = came[r, c]
        r, c = r - (way != 2), c - (way != 1)
    return np.array(path[::-1], np.int32).T


@op(
    "BifurcationDetector",
    host="all",
    multiple=True,
    shapes="source: S; current: C; previous: | 1; predicted: P",
)
def bifurcation_detector(
    _: Namespace,
    source: Array,
    current: Array,
    previous: Array,
    predicted: Array | None = None,
    *,
    min_ngram_size: int = 1,
    max_ngram_size: int = 3,
) -> tuple[Array, ...]:
    """Keep the predicted tokens up to the first that differs from the source, and that one.

    Then looks for the only place in the source of the last tokens; the second output is the place
    after them, or -1.
    """
    tokens = current
    if predicted is not None:
        start = int(previous.reshape(-1)[0])
        rest = source[start : start + len(predicted) - 1]
        if len(predicted) != len(source) + 1 - start:
            raise ValueError(
                f"expected {len(source) + 1 - start} predicted tokens, one more than the source "
                f"has from {start} on; found {len(predicted)}"
            )
        differs = np.flatnonzero(predicted[: len(rest)] != rest)
        agreed = int(differs[0]) if len(differs) else len(rest)
        tokens = np.concatenate([current, predicted[: agreed + 1]])
    # Longer n-grams have fewer places, so the first size with one place has the answer.
    match = -1
    for size in range(min_ngram_size, max_ngram_size + 1):
        if size > len(tokens) or size > len(source):
            break
        windows = np.lib.stride_tricks.sliding_window_view(source, size)
        places = np.flatnonzero((windows == tokens[-size:]).all(axis=1))
        if not len(places):
            break
        if len(places) == 1:
            match = int(places[0]) + size
            break
    return tokens, np.array(match, np.int64).reshape(())
