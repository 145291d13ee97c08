"""NonMaxSuppression: the best boxes of each class, without those that overlap a better one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable

table = OperatorTable()
op = table.op


@op("NonMaxSuppression", since=10, host="all")
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
    limit = int(_scalar(max_output_boxes_per_class, 0))
    overlap = _scalar(iou_threshold, 0.0)
    floor = None if score_threshold is None else _scalar(score_threshold, 0.0)
    selected = [np.zeros((0, 3), np.int64)]
    for batch in range(len(boxes)) if limit > 0 else ():
        corners = to_corners(boxes[batch], center_point_box)
        for number, score in enumerate(scores[batch]):
            kept = np.array(list(best(corners, score, limit, overlap, floor)), np.int64)
            labels = np.broadcast_to(np.array([batch, number]), (len(kept), 2))
            selected.append(np.concatenate([labels, kept[:, None]], axis=1))
    return xp.concatenate(selected)


def _scalar(value: Array | None, default: float) -> Array:
    return np.float32(default) if value is None or not value.size else value.reshape(-1)[0]


def to_corners(boxes: Array, center_point_box: int) -> Array:
    """Return the low and the high corner of each box, (2, S, 2), and its area, (S,)."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if center_point_box:
        return np.stack([first - second / 2, first + second / 2])
    return np.stack([np.minimum(first, second), np.maximum(first, second)])


def best(
    corners: Array, scores: Array, limit: int, overlap: Array, floor: Array | None
) -> Iterator[int]:
    """Yield the boxes of one class that are selected, best first."""
    order = np.arange(len(scores)) if floor is None else np.nonzero(scores > floor)[0]
    order = order[np.argsort(-scores[order], kind="stable")]
    low, high = corners
    area = np.prod(high - low, axis=1)
    for _ in range(limit):
        if not len(order):
            return
        top, order = order[0], order[1:]
        yield top
        sides = np.minimum(high[top], high[order]) - np.maximum(low[top], low[order])
        shared = np.prod(np.maximum(sides, 0), axis=1)
        union = area[top] + area[order] - shared
        ratio = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        order = order[~(ratio > overlap)]
