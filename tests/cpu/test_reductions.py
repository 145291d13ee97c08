"""Sums and extremes of float32 on a kernel: what float64 gives, over axes of any place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, run, session, wide

from models import node
from tenonnx_cpu.reduce.fold import FOLD

FUNCTIONS: dict[str, Any] = {
    "ReduceL2": lambda x, **how: np.sqrt(np.sum(x * x, **how)),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **how: np.sum(x * x, **how),
}
CASES = [
    ((7, 33, 5), (1,)), ((7, 33, 5), (-1,)), ((7, 33, 5), (0, 1)), ((3, 1, 900), (1, 2)),
    ((2, 3, 40, 50), (-1, 2)), ((2, 3, 40, 50), (0,)), ((5, 1, 6), (1,)), ((40000,), (0,)),
    ((3, 2, 1100), (1,)), ((6, 7), None),
]  # fmt: skip


@pytest.mark.parametrize("operator", FUNCTIONS)
@pytest.mark.parametrize(("shape", "axes"), CASES)
def test_against_float64(
    operator: str, shape: Any, axes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watch(FOLD, monkeypatch)
    x = floats(*shape)
    for keeps, threads in ((1, 1), (0, 4)):
        weights = {} if axes is None else {"a": np.array(axes)}
        reduce = node(operator, "x" if axes is None else "x a", "y", keepdims=keeps)
        one = session([reduce], {"x": x}, "y", weights, threads=threads)
        expected = FUNCTIONS[operator](x.astype(np.float64), axis=axes, keepdims=bool(keeps))
        (y,) = one.run(None, {"x": x})
        assert y.shape == expected.shape
        atol = 1e-6 * max(1, np.abs(x).sum() if operator in ("ReduceSum",) else 1)
        np.testing.assert_allclose(y, expected, rtol=2e-6, atol=atol)
    assert watched.calls == 2


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "ReduceSum"])
@pytest.mark.parametrize("shape", [(3, 70), (70, 3)])
def test_what_is_no_number_stays(operator: str, shape: Any) -> None:
    for place in (0, 1, 69):
        x = floats(*shape)
        index = (1, place) if shape[0] == 3 else (place, 1)
        x[index] = np.nan
        axis = shape.index(70)
        one = session([node(operator, "x a", "y")], {"x": x}, "y", {"a": np.array([axis])})
        (y,) = one.run(None, {"x": x})
        np.testing.assert_array_equal(np.isnan(y).ravel(), [False, True, False])


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceSum"])
def test_integers(name: str) -> None:
    x = np.array([[2**30, 2**30, 5], [-3, 2**31 - 1, 1]], np.int32)
    weights, kinds = {"a": np.array([1])}, {"x": 6, "y": 6}
    one = session([node(name, "x a", "y", keepdims=0)], {"x": x}, "y", weights, kinds=kinds)
    (y,) = one.run(None, {"x": x})
    assert y.dtype == np.int32
    wide = x.astype(np.int64)
    expected = wide.max(1) if name == "ReduceMax" else wide.sum(1)
    np.testing.assert_array_equal(y, expected.astype(np.int32))


def test_small_steps_are_numpys() -> None:
    x = floats(5, 6)
    nodes = [
        node("ArgMax", "x", "best", axis=1, keepdims=0),
        node("Cast", "best", "short", to=6),
        node("Gather", "x best", "y", axis=1),
        node("Cast", "y", "half", to=10),
    ]
    one = session(nodes, {"x": x}, "best short y half", kinds={"best": 7, "short": 6, "half": 10})
    best, short, y, half = one.run(None, {"x": x})
    np.testing.assert_array_equal(best, x.argmax(1))
    assert (short.dtype, half.dtype) == (np.int32, np.float16)
    np.testing.assert_array_equal(y, x[:, x.argmax(1)])
    np.testing.assert_array_equal(half, y.astype(np.float16))


def test_a_place_outside_is_told() -> None:
    feeds = {"x": floats(5, 6), "p": np.array([1, 9])}
    one = session([node("Gather", "x p", "y")], feeds, "y", kinds={"p": 7})
    with pytest.raises(Exception, match="Gather"):
        one.run(None, feeds)


@pytest.mark.parametrize(("shape", "axes"), [((2, 64, 14), [1]), ((2, 28, 28, 8), [1, 2])])
def test_squares_less_the_square_of_a_mean(shape: tuple[int, ...], axes: list[int]) -> None:
    """Exporters write variances so; of a mean of 30, sums in float32 leave two digits of them."""
    x = floats(*shape) + np.float32(30)
    means = [
        run([node("ReduceMean", f"{name} a", "y")], {name: array}, "y", {"a": np.array(axes)})
        for name, array in (("x", x), ("q", x * x))
    ]
    expected = wide(lambda a: a.var(axis=tuple(axes), keepdims=True), x)
    # Means of squares, about 900, have 24 bits.
    np.testing.assert_allclose(means[1] - means[0] ** 2, expected, atol=900 * 2**-23)
