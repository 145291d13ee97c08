"""Operators that are several launches, or a scale for each row, are numpy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper
from running import captures, require_kernels, session

import tenonnx
from models import node
from tenonnx_array.grid import affine_grid
from tenonnx_array.index import one_hot
from tenonnx_array.ml.scale import scaler
from tenonnx_array.quant import dequantize_linear, quantize_linear
from tenonnx_array.reduce import log_sum_exp
from tenonnx_array.softmax import hardmax, lp_normalization
from tenonnx_contrib.branches import engram_gate

require_kernels()

RNG = np.random.default_rng(5)


def check(
    op: str, arrays: list[Any], weights: dict[int, Any], expected: Any, **attributes: Any
) -> None:
    """Compare three runs of a node with numpy's result; the last one is replayed."""
    names = [f"x{place}" for place in range(len(arrays) + len(weights))]
    fed = iter(arrays)
    feeds = {name: next(fed) for place, name in enumerate(names) if place not in weights}
    given = {names[place]: array for place, array in weights.items()}
    kinds = {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in (feeds | given).items()}
    kinds["y"] = helper.np_dtype_to_tensor_dtype(expected.dtype)
    domain = attributes.pop("domain", "")
    made = session(
        [node(op, " ".join(names), "y", domain=domain, **attributes)], feeds, "y", given,
        kinds=kinds, domains={"": 21, "ai.onnx.ml": 3},
    )  # fmt: skip
    for _ in range(3):
        (y,) = made.run(None, feeds)
        assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(y, expected)
    assert all(captures(made))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float32])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_counts_from_the_end_and_passes_over_others(dtype: Any, axis: int) -> None:
    places = RNG.integers(-9 if dtype != np.uint8 else 0, 9, (7, 5)).astype(dtype)
    for values in (np.float32([0.5, 2]), np.int64([7, -1]), np.array([False, True])):
        expected = one_hot(np, places, np.array(6), values, axis=axis)
        check("OneHot", [places, values], {1: np.array(6)}, expected, axis=axis)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_first_of_equals_is_the_hardest(dtype: Any, axis: int) -> None:
    x = RNG.integers(-3, 3, (6, 5, 7)).astype(dtype)
    x[0, 0] = np.nan
    check("Hardmax", [x], {}, hardmax(np, x, axis=axis), axis=axis)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 2])
def test_rows_of_norm_zero_stay(dtype: Any, p: int) -> None:
    x = RNG.integers(-3, 4, (6, 5, 8)).astype(dtype)
    x[0], x[1, 0], x[2, 1, 3] = 0, 1e-200 if dtype == np.float64 else 1e-30, np.nan
    if (p, dtype) == (2, np.float32):  # whose squares are added in float64
        x[1, 0] = 2
    for axis in (0, 1, 2):
        check("LpNormalization", [x], {}, lp_normalization(np, x, axis=axis, p=p), axis=axis, p=p)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("count", [1, 5])
def test_scaled_differences(dtype: Any, count: int) -> None:
    x = RNG.integers(-99, 99, (7, 5)).astype(dtype)
    given: dict[str, Any] = {"offset": [0.1] * count, "scale": [1.7 + n for n in range(count)]}
    function: Callable[..., Any] = scaler(np, **given)
    check("Scaler", [x], {}, function(x), domain="ai.onnx.ml", **given)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("given", [(0, 0), (1, 0), (-1, 0), (1, 5)])
def test_scales_of_rows_and_blocks(dtype: Any, given: tuple[int, int]) -> None:
    axis, block = given
    shape = (4, 10, 6)
    count = (shape[axis],) if not block else (4, 2, 6)
    x = (RNG.standard_normal(shape) * 90).astype(np.float32)
    x[0, 0, 0], x[1, 0, 0], x[2, 1, 1] = np.nan, np.inf, -np.inf
    scale = (RNG.random(count) + 0.1).astype(np.float32)
    zero = RNG.integers(0, 99, count).astype(dtype)
    attributes = {"axis": axis, "block_size": block}
    codes = quantize_linear(np, x, scale, zero, **attributes)
    real = dequantize_linear(np, codes, scale, zero, **attributes)
    for weights, more in (({1: scale, 2: zero}, []), ({}, [scale, zero])):
        check("QuantizeLinear", [x, *more], weights, codes, **attributes)
        check("DequantizeLinear", [codes, *more], weights, real, **attributes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [(3, 1, 4, 5), (2, 1, 3, 4, 5), (1, 2, 1, 1)])
@pytest.mark.parametrize("aligned", [0, 1])
def test_places_of_an_image_are_mapped(dtype: Any, size: tuple[int, ...], aligned: int) -> None:
    rank = len(size) - 2
    theta = RNG.standard_normal((size[0], rank, rank + 1)).astype(dtype)
    sizes = np.array(size)
    expected = affine_grid(np, theta, sizes, align_corners=aligned)
    check("AffineGrid", [theta], {1: sizes}, expected, align_corners=aligned)


@pytest.mark.parametrize("shape", [(3, 0), (0, 8)])
def test_branches_without_elements(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    made = session(
        [node("BranchwiseRMSNorm", "x", "y", domain="com.microsoft", num_branches=2)], {"x": x},
        "y", domains={"": 21, "com.microsoft": 1},
    )  # fmt: skip
    for _ in range(2):
        assert made.run(None, {"x": x})[0].shape == shape


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gates_of_connections(dtype: Any) -> None:
    shape = batch, steps, streams, width = 2, 3, 4, 20
    given = {
        "key": RNG.standard_normal(shape), "query": RNG.standard_normal(shape),
        "value": RNG.standard_normal((batch, steps, width)),
        "a": RNG.standard_normal((streams, width)), "b": RNG.standard_normal((streams, width)),
    }  # fmt: skip
    given["query"][0, 0] = 0  # whose gate is that of nothing
    feeds = {name: x.astype(dtype) for name, x in given.items()}
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for name in [*feeds, "y"]}
    made = session(
        [node("EngramGate", " ".join(feeds), "y", domain="com.microsoft")], feeds, "y",
        kinds=kinds, domains={"": 21, "com.microsoft": 1},
    )  # fmt: skip
    expected, _ = engram_gate(np, *feeds.values())
    for _ in range(3):
        (y,) = made.run(None, feeds)
        assert y.dtype == dtype
        np.testing.assert_allclose(y, expected, 1e-5 if dtype == np.float32 else 2e-3, 1e-5)
    assert all(captures(made))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("points", [1, 3])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_to_points_that_are_computed(dtype: Any, points: int, metric: str) -> None:
    x, p = (RNG.integers(-9, 9, (n, 5)).astype(dtype) for n in (7, points))
    squares = ((x[:, None] - p) ** 2).sum(-1)
    expected = squares if metric == "sqeuclidean" else np.sqrt(squares)
    made = session(
        [node("CDist", "x p", "y", domain="com.microsoft", metric=metric)], {"x": x, "p": p}, "y",
        kinds=dict.fromkeys("xpy", helper.np_dtype_to_tensor_dtype(np.dtype(dtype))),
        domains={"": 21, "com.microsoft": 1},
    )  # fmt: skip
    for _ in range(3):
        np.testing.assert_allclose(made.run(None, {"x": x, "p": p})[0], expected, 1e-6)
    assert all(captures(made))


@pytest.mark.parametrize("axes", [[0], [1], [-1], [0, 2], [0, 1, 2], []])
@pytest.mark.parametrize("keeps", [0, 1])
def test_logarithms_of_sums(axes: list[int], keeps: int) -> None:
    x = RNG.standard_normal((4, 5, 6)) * 300
    x[0], x[1, 1], x[2, 2, 2], x[3, 3, :2] = -np.inf, np.inf, np.nan, (np.inf, -np.inf)
    made = session(
        [node("ReduceLogSumExp", "x a" if axes else "x", "y", keepdims=keeps)], {"x": x}, "y",
        {"a": np.array(axes)} if axes else {}, kinds={"x": 11, "y": 11},
    )  # fmt: skip
    with np.errstate(all="ignore"):
        expected = log_sum_exp(np, x, tuple(axes) or None, bool(keeps))
    for _ in range(3):
        np.testing.assert_allclose(made.run(None, {"x": x})[0], expected, 1e-14)
    assert all(captures(made))


@pytest.mark.parametrize("size", [1e-40, 1e-25, 1e-22, 1e-18, 1e18, 1e25, 1e37])
@pytest.mark.parametrize("level", [0, 99])
def test_rows_of_small_and_large_numbers_are_normalized(level: int, size: float) -> None:
    """Kernels sum squares in float64: a length below 3e-23 is one."""
    x = np.float32([[size] * 4, [0] * 4])
    layer = node("LpNormalization", "x", "y", axis=1)
    one = session([layer], {"x": x}, "y", level=tenonnx.GraphOptimizationLevel(level))
    for _ in range(3):
        found = one.run(None, {"x": x})[0]
        np.testing.assert_allclose(found, [[0.5] * 4, [0] * 4], rtol=1e-4)
