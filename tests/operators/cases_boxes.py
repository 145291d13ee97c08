"""NonMaxSuppression at a version and with inputs that the backend suite leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import Case
from formula import RNG


def corners(box: Any, center: bool) -> tuple[Any, Any]:
    first, second = np.float64(box[:2]), np.float64(box[2:])
    if center:
        return first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)


def overlap(a: Any, b: Any, center: bool) -> float:
    (low_a, high_a), (low_b, high_b) = corners(a, center), corners(b, center)
    shared = np.prod(np.maximum(np.minimum(high_a, high_b) - np.maximum(low_a, low_b), 0))
    union = np.prod(high_a - low_a) + np.prod(high_b - low_b) - shared
    return float(shared / union) if union else 0.0


def selected(
    boxes: Any,
    scores: Any,
    limit: Any = 0,
    most: Any = 0.0,
    least: Any = -np.inf,
    center: bool = False,
) -> Any:
    """The definition, a box at a time."""
    kept: list[list[int]] = []
    for n, c in np.ndindex(scores.shape[:2]):
        taken: list[int] = []
        for i in sorted(range(scores.shape[2]), key=lambda i: -scores[n, c, i]):
            apart = all(overlap(boxes[n, i], boxes[n, j], center) <= most for j in taken)
            if len(taken) < limit and scores[n, c, i] > least and apart:
                taken.append(i)
        kept += [[n, c, i] for i in taken]
    return np.array(kept, np.int64).reshape(-1, 3)


def centered(*inputs: Any) -> Any:
    return selected(*inputs, center=True)


BOXES = RNG.uniform(0, 1, (2, 25, 4)).astype(np.float32)
SCORES = RNG.uniform(0, 1, (2, 3, 25)).astype(np.float32)
TIED = np.round(SCORES, 1)
SQUARES = np.float32([[[0, 0, 2, 2], [1, 0, 3, 2], [0, 0, 0, 0], [0, 0, 0, 0]]])
LEVELS = np.float32([[[0.5, 0.5, 0.5, 0.25]]])
FIVE, HALF, QUARTER, ALL = np.int64(5), np.float32(0.5), np.float32([0.25]), np.int64([2**62])

CASES = [
    Case("NonMaxSuppression", 10, [BOXES, SCORES, FIVE], selected),
    Case("NonMaxSuppression", 10, [BOXES, SCORES], np.zeros((0, 3), np.int64), name="no-limit"),
    Case("NonMaxSuppression", 10, [BOXES, SCORES, FIVE, QUARTER], selected, name="overlap"),
    Case("NonMaxSuppression", 11, [BOXES, TIED, ALL, QUARTER, HALF], selected, name="ties"),
    Case(
        "NonMaxSuppression",
        11,
        [BOXES, SCORES, FIVE, QUARTER, QUARTER],
        centered,
        {"center_point_box": 1},
        name="centered",
    ),
    # A third is shared; boxes without an area overlap nothing; a score must exceed its threshold.
    Case(
        "NonMaxSuppression",
        11,
        [SQUARES, LEVELS, FIVE, np.float32(1 / 3), QUARTER],
        np.int64([[0, 0, 0], [0, 0, 1], [0, 0, 2]]),
        name="boundary",
    ),
    Case("NonMaxSuppression", 11, [BOXES[:, :0], SCORES[..., :0], FIVE], selected, name="empty"),
]
