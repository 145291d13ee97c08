"""Resize on its kernel, beside the array operator in float64, which has tests of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, run

from models import node
from tenonnx_array.resize import resize
from tenonnx_cpu.conv.resizing import RESIZE

LINEAR = {"mode": "linear"}
CORNERS = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
CASES: list[tuple[tuple[int, ...], dict[str, Any], dict[str, Any]]] = [
    ((1, 3, 40, 50), {"scales": [1, 1, 2, 2]}, ASYMMETRIC),
    ((2, 3, 40, 50), {"scales": [1, 1, 2, 2]}, LINEAR),
    ((1, 5, 33, 17), {"sizes": [1, 5, 70, 90]}, CORNERS),
    ((1, 5, 33, 17), {"scales": [1, 1, 2.3, 1.7]}, CORNERS),
    ((1, 2, 64, 48), {"sizes": [1, 2, 13, 31]}, LINEAR),
    ((1, 2, 64, 48), {"sizes": [1, 2, 13, 99]}, {}),
    ((1, 2, 9, 21), {"scales": [1, 1, 1, 2.5]}, LINEAR),
    ((1, 2, 9, 21), {"scales": [1, 1, 3, 1]}, LINEAR),
    ((2, 3, 25), {"scales": [1, 1, 4]}, {"mode": "linear", "exclude_outside": 1}),
    ((1, 1, 1, 1), {"sizes": [1, 1, 7, 5]}, LINEAR),
]


def inputs(by: dict[str, Any]) -> dict[str, Any]:
    return {
        name: np.array(by[name], np.float32 if name == "scales" else np.int64)
        for name in ("scales", "sizes")
        if name in by
    }


@pytest.mark.parametrize(("shape", "by", "attributes"), CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 4])
def test_resize(
    shape: Any, by: Any, attributes: Any, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Watch(RESIZE, monkeypatch)
    x, given = floats(*shape), inputs(by)
    places = "x _ scales" if "scales" in by else "x _ _ sizes"
    nodes = [node("Resize", places, "y", **attributes)]
    y = run(nodes, {"x": x}, "y", given, threads=threads)
    assert kernel.calls == 1
    expected = resize(np, x.astype(np.float64), **given, **attributes)
    assert y.shape == expected.shape
    if attributes.get("mode") == "linear":
        assert np.abs(y - expected).max() <= 3e-7 * np.abs(x).max()
    else:
        np.testing.assert_array_equal(y, expected)


def test_what_is_not_between_two_elements_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(RESIZE, monkeypatch)
    x = floats(1, 4, 12, 10)
    for scales, attributes in (
        ([1, 1, 2, 2], {"mode": "cubic"}),
        ([1, 1, 0.3, 0.4], {"mode": "linear", "antialias": 1}),
        ([1, 2, 2, 1], {"mode": "linear"}),
        ([1, 1, 1, 1], {"mode": "linear"}),
    ):
        given = inputs({"scales": scales})
        y = run([node("Resize", "x _ scales", "y", **attributes)], {"x": x}, "y", given)
        expected = resize(np, x.astype(np.float64), **given, **attributes)
        assert np.abs(y - expected).max() <= 1e-5
    assert kernel.calls == 0


def test_one_odd_number_goes_where_it_is_read() -> None:
    x = floats(1, 1, 6, 6)
    x[0, 0, 2, 3] = np.inf
    nodes = [node("Resize", "x _ scales", "y")]
    y = run(nodes, {"x": x}, "y", inputs({"scales": [1, 1, 2, 2]}))
    assert np.isinf(y).sum() == 4
    assert not np.isnan(y).any()
