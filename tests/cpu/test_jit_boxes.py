"""NonMaxSuppression on its kernel, beside the array operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, run

from models import node
from tenonnx_array.boxes import non_max_suppression
from tenonnx_cpu.conv.boxes import SUPPRESS

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("limit", [1, 20, 10_000])
@pytest.mark.parametrize("most", [0.0, 0.3, 0.9])
def test_the_same_boxes_are_selected(
    center: int, limit: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(SUPPRESS, monkeypatch)
    boxes = RNG.uniform(0, 1, (2, 300, 4)).astype(np.float32)
    boxes[:, ::7, 2:] = boxes[:, ::7, :2]
    scores = np.round(RNG.uniform(0, 1, (2, 3, 300)), 2).astype(np.float32)
    given: dict[str, Any] = {
        "limit": np.array([limit]),
        "most": np.float32([most]),
        "least": np.float32([0.25]),
    }
    nodes = [node("NonMaxSuppression", "b s limit most least", "y", center_point_box=center)]
    y = run(nodes, {"b": boxes, "s": scores}, "y", given, kinds={"y": 7})
    assert kernel.calls == 6
    expected = non_max_suppression(np, boxes, scores, *given.values(), center_point_box=center)
    np.testing.assert_array_equal(y, expected)


def test_no_boxes_and_no_limit() -> None:
    nodes = [node("NonMaxSuppression", "b s limit", "y")]
    none = np.zeros((1, 0, 4), np.float32), np.zeros((1, 2, 0), np.float32)
    some = np.ones((1, 3, 4), np.float32), np.ones((1, 2, 3), np.float32)
    for (boxes, scores), limit in ((none, 5), (some, 0)):
        feeds = {"b": boxes, "s": scores}
        y = run(nodes, feeds, "y", {"limit": np.array([limit])}, kinds={"y": 7})
        assert y.shape == (0, 3)
