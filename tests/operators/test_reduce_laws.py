from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tenonnx
from models import model, node, value
from tenonnx_array import TABLE

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, max_side=6)
FLOATS = st.floats(-100, 100, width=32)
ARRAYS = hnp.arrays(np.float32, SHAPES, elements=FLOATS)
DIGITS = hnp.arrays(np.int32, SHAPES, elements=st.integers(0, 3))


def kernel(op: str, version: int = 28, **attributes: Any) -> Any:
    found = TABLE.find("", op, version)
    assert found is not None
    return found.bind(np, attributes, 1)


@given(ARRAYS, st.data())
def test_softmax(x: Any, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    y = kernel("Softmax", axis=axis)(x)
    np.testing.assert_allclose(y.sum(axis), 1, rtol=1e-5)
    np.testing.assert_allclose(kernel("Softmax", axis=axis)(x + 8), y, rtol=1e-3, atol=1e-6)
    logs = kernel("LogSoftmax", axis=axis)(x)
    np.testing.assert_allclose(np.exp(logs), y, rtol=1e-4, atol=1e-6)
    hard = kernel("Hardmax", axis=axis)(x)
    np.testing.assert_array_equal(np.sum(hard * x, axis), np.max(x, axis))
    assert np.all(hard.sum(axis) == 1)


@given(DIGITS, st.data())
def test_running_sums(x: Any, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    at = np.array(axis)
    upto, before = kernel("CumSum")(x, at), kernel("CumSum", exclusive=1)(x, at)
    np.testing.assert_array_equal(before + x, upto)
    onwards = kernel("CumSum", reverse=1)(x, at)
    after = kernel("CumSum", reverse=1, exclusive=1)(x, at)
    np.testing.assert_array_equal(after + x, onwards)
    np.testing.assert_array_equal(
        upto + after, np.broadcast_to(x.sum(axis, keepdims=True), x.shape)
    )
    powers = kernel("CumProd")(np.exp2(x), at)
    np.testing.assert_allclose(np.log2(powers), upto, atol=1e-6)


@given(DIGITS, st.data())
def test_top_k_is_a_stable_sort(x: Any, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    k = data.draw(st.integers(0, x.shape[axis]))
    largest = data.draw(st.integers(0, 1))
    values, indices = kernel("TopK", axis=axis, largest=largest)(x, np.array([k]))
    expected = np.argsort(-x if largest else x, axis=axis, kind="stable")
    expected = np.take(expected, range(k), axis)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis))
    assert indices.dtype == np.int64


@pytest.mark.parametrize("size", [16, 1000])
@pytest.mark.parametrize("distinct", [3, 10**6])
def test_top_k_of_long_rows(size: int, distinct: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.integers(0, distinct, (5, size)).astype(np.float32)
    x[0, 3] = np.nan
    for largest in (0, 1):
        # NaN is the greatest.
        sign = -1 if largest else 1
        keys = [[(sign * bool(n != n), sign * np.nan_to_num(n)) for n in row] for row in x]
        expected = [sorted(range(size), key=row.__getitem__)[:10] for row in keys]
        _, indices = kernel("TopK", largest=largest)(x, np.array([10]))
        np.testing.assert_array_equal(indices, expected)


@given(DIGITS, st.sampled_from(["ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare"]))
def test_one_axis_after_the_other_is_all_at_once(x: Any, op: str) -> None:
    inner = "ReduceSum" if op == "ReduceSumSquare" else op
    y = x * x if op == "ReduceSumSquare" else x
    for axis in range(x.ndim):
        y = kernel(inner)(y, np.array([axis]))
    result = kernel(op)(x)
    np.testing.assert_array_equal(result, y)
    assert result.dtype == x.dtype


@given(ARRAYS)
def test_log_sum_exp_is_close_to_the_maximum(x: Any) -> None:
    top, soft = x.max(), kernel("ReduceLogSumExp", keepdims=0)(x)
    assert top - 1e-3 <= soft <= top + np.log(x.size) + 1e-3


def test_top_k_beyond_the_axis_is_refused() -> None:
    with pytest.raises(ValueError, match="expected k from 0 to 3"):
        kernel("TopK")(np.zeros(3, np.float32), np.array([4]))


@pytest.mark.parametrize("mode", ["0", "1"])
@pytest.mark.parametrize("op", ["ReduceMean", "GlobalAveragePool"])
def test_a_mean_is_finite_where_its_sum_is_not(
    op: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_JIT", mode)
    x = np.full((2, 3, 4, 5), 3e38, np.float32)
    nodes = [node(op, "x axes" if op == "ReduceMean" else "x", "y")]
    axes = {"axes": np.array([2, 3])}
    proto = model(nodes, [value("x", shape=[2, 3, 4, 5])], [value("y")], axes)
    (y,) = tenonnx.InferenceSession(proto).run(None, {"x": x})
    np.testing.assert_array_equal(y, np.full((2, 3, 1, 1), 3e38, np.float32))
