"""Resize on its kernel, beside the array operator in float64, which has tests of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, run, session

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


def test_sums_of_more_elements_are_no_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


OTHERS: list[tuple[list[float], dict[str, Any]]] = [
    ([1, 1, 2, 2], {"mode": "cubic"}),
    ([1, 1, 0.3, 0.4], {"mode": "linear", "antialias": 1}),
    ([1, 1, 0.6, 2.5], {"mode": "cubic", "antialias": 1}),
    ([1, 2, 2, 1], {"mode": "linear"}),
    ([2, 1, 0.5, 1.5], {"mode": "linear", "exclude_outside": 1}),
    ([1, 1, 2, 3], {}),
    ([1, 1, 0.5, 0.4], {"nearest_mode": "ceil"}),
]
TYPES = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 6: np.int32, 7: np.int64,
    10: np.float16, 11: np.float64,
}  # fmt: skip


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("scales", "attributes"), OTHERS, ids=str)
def test_resize_of_any_type(scales: Any, attributes: Any, kind: int, threads: int) -> None:
    dtype = TYPES[kind]
    x = np.random.default_rng(0).integers(0, 100, (2, 3, 24, 20)).astype(dtype)
    given = inputs({"scales": scales})
    nodes, kinds = [node("Resize", "x _ scales", "y", **attributes)], {"x": kind, "y": kind}
    one = session(nodes, {"x": x}, "y", given, threads=threads, kinds=kinds)
    expected = resize(np, x, **given, **attributes)
    for _ in range(3):
        (y,) = one.run(None, {"x": x})
        assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
        if dtype in (np.float32, np.float16):
            near = 4 * np.spacing(dtype(100))  # of the largest element
            np.testing.assert_allclose(y.astype(float), expected.astype(float), rtol=0, atol=near)
        else:
            np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-11)


def test_one_odd_number_goes_where_it_is_read() -> None:
    x = floats(1, 1, 6, 6)
    x[0, 0, 2, 3] = np.inf
    nodes = [node("Resize", "x _ scales", "y")]
    y = run(nodes, {"x": x}, "y", inputs({"scales": [1, 1, 2, 2]}))
    assert np.isinf(y).sum() == 4
    assert not np.isnan(y).any()
