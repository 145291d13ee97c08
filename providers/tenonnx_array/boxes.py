"""NonMaxSuppression: the best boxes of each class, without those that overlap a better one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx.process import interruption

table = OperatorTable()
op = table.op

Suppress: TypeAlias = Callable[[Array, int, Array], Array]


@op(
    "NonMaxSuppression",
    since=10,
    host="all",
    shapes=(
        "boxes: N S 4; scores: N C S; max_output_boxes_per_class iou_threshold score_threshold: | 1"
    ),
)
def non_max_suppression(
    xp: Namespace,
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """Return (batch, class, box) of the boxes (N, S, 4) selected by scores (N, classes, S).

    Per class, best first; of equal scores the first box. A score must exceed its threshold. A box
    goes if the intersection over union with a better one exceeds ``iou_threshold``.

    Raises:
        ValueError: The shapes do not fit.
    """
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[::2] != (scores.shape[0], 4):
        raise ValueError(
            "expected boxes of shape (N, S, 4) and scores of shape (N, classes, S), "
            f"found {boxes.shape} and {scores.shape}"
        )
    limits = max_output_boxes_per_class, iou_threshold, score_threshold
    return xp.concatenate(select(boxes, scores, *limits, center_point_box, apart))


def select(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None,
    iou_threshold: Array | None,
    score_threshold: Array | None,
    center_point_box: int,
    suppress: Suppress,
) -> list[Array]:
    """Return what ``non_max_suppression`` does of the same arguments, in parts.

    ``suppress`` is ``apart``, or what does the same.

    Raises:
        ValueError: ``iou_threshold`` is not from 0 to 1.
    """
    limit = int(_scalar(max_output_boxes_per_class, 0))
    overlap = _scalar(iou_threshold, 0.0)
    if not 0 <= overlap <= 1:
        raise ValueError(f"iou_threshold must be in [0, 1], found {overlap}")
    floor = None if score_threshold is None else _scalar(score_threshold, 0.0)
    selected = [np.zeros((0, 3), np.int64)]
    for batch in range(len(boxes)) if limit > 0 else ():
        sides = to_sides(boxes[batch], center_point_box)
        for number, score in enumerate(scores[batch]):
            order = np.arange(len(score)) if floor is None else np.nonzero(score > floor)[0]
            order = order[np.argsort(-score[order], kind="stable")]
            if len(order):
                kept = order[suppress(sides[:, order], limit, overlap)]
                labels = np.broadcast_to(np.array([batch, number]), (len(kept), 2))
                selected.append(np.concatenate([labels, kept[:, None]], axis=1))
    return selected


def _scalar(value: Array | None, default: float) -> Array:
    return np.float32(default) if value is None or not value.size else value.reshape(-1)[0]


def to_sides(boxes: Array, center_point_box: int) -> Array:
    """Return where boxes (S, 4) begin and end along both axes, and their areas, (5, S)."""
    sides = np.empty((5, len(boxes)), boxes.dtype)
    first, second = boxes.T[:2], boxes.T[2:]
    if center_point_box:
        half = second / 2
        np.subtract(first, half, out=sides[:2])
        np.add(first, half, out=sides[2:4])
    else:
        np.minimum(first, second, out=sides[:2])
        np.maximum(first, second, out=sides[2:4])
    np.multiply(sides[2] - sides[0], sides[3] - sides[1], out=sides[4])
    return sides


def apart(sides: Array, limit: int, overlap: Array) -> Array:
    """Return which boxes are selected, at most ``limit``, of boxes from the best one on.

    The first box that is left is taken and compared with all others at once, of which those that
    do not overlap it stay.
    """
    left, order = sides, np.arange(sides.shape[1])
    kept: list[int] = []
    while len(order) and len(kept) < limit:
        interruption.check()
        kept.append(order[0])
        low_x, low_y, high_x, high_y, area = left[:, 0]
        left, order = left[:, 1:], order[1:]
        width = np.minimum(high_x, left[2]) - np.maximum(low_x, left[0])
        height = np.minimum(high_y, left[3]) - np.maximum(low_y, left[1])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        # Nothing is shared without an area: then the union may be 0, and is not divided by.
        covered = shared > 0
        np.divide(shared, area + left[4] - shared, out=shared, where=covered)
        if (gone := shared > overlap).any():
            stays = ~gone
            left, order = left[:, stays], order[stays]
    return np.array(kept, np.int64)
