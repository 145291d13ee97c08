"""Reductions and running sums of any type along any axes are numpy's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from running import require_kernels

from tenonnx_array.cumulative import cumprod, cumsum
from tenonnx_array.reduce import REDUCTION_FUNCTIONS
from tenonnx_array.search import extreme
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.reduce.fold import folded
from tenonnx_cpu.reduce.scan import ScanOrder, scanned

require_kernels()

SHAPES = [(7,), (3, 5, 7), (4, 600, 3), (2, 3, 1100), (5, 1, 6, 2)]
OPERATORS = [*REDUCTION_FUNCTIONS.keys() - {"ReduceLogSumExp"}]
NEAR = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-2}
DTYPES = ["float64", "float32", "float16", "int32", "int64", "int8", "uint8", "uint32", "bool"]


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(0).standard_normal(shape) * 3 + 1
    x = abs(x) if dtype[0] == "u" else x  # floats below 0 as unsigned are the hardware's
    return x > 0 if dtype == "bool" else x.astype(np.int64).astype(dtype)


def axes_of(rank: int) -> list[tuple[int, ...]]:
    counts = range(1, rank + 1)
    return [some for n in counts for some in itertools.combinations(range(rank), n)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reductions(dtype: str) -> None:
    for shape, operator in itertools.product(SHAPES, sorted(OPERATORS)):
        whole = drawn(shape, dtype)
        for x, axes in itertools.product((whole, whole[..., ::-1]), axes_of(len(shape))):
            made = folded(operator, x, axes, True, 2)
            if made is None:
                # Means of too many int8, and logarithms of whole numbers, are numpy's.
                assert dtype == "bool" or operator in ("ReduceMean", "ReduceLogSum")
                continue
            found, expected = (
                done(made),
                REDUCTION_FUNCTIONS[operator](np, x, axes, True).astype(dtype),
            )
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            near = NEAR.get(dtype, 0.0)
            pair = (each.astype(np.float64) for each in (found, expected))
            np.testing.assert_allclose(*pair, rtol=near, atol=near)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_is_the_greatest_and_the_least() -> None:
    x = drawn((40, 50), "float64")
    x[3, 4] = np.nan
    for operator, axis in itertools.product(("ReduceMax", "ReduceMin"), (0, 1)):
        made = folded(operator, x, (axis,), False, 1)
        np.testing.assert_array_equal(
            done(made), REDUCTION_FUNCTIONS[operator](np, x, (axis,), False)
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_places(operator: str, dtype: str) -> None:
    """The first or the last of equals; NaN is the greatest and the least."""
    for shape in [*SHAPES, (3, 130), (130, 3), (70, 70), (2, 1, 64)]:
        x = drawn(shape, dtype)
        holed = x.copy()
        if x.dtype.kind == "f":
            holed[x == x.flat[x.size // 2]] = np.nan
        for each, axis, last in itertools.product((x, holed), range(-1, len(shape)), (0, 1)):
            given = np.asfortranarray(each) if axis else each
            made = folded(operator, given, (axis,), False, 2, bool(last))
            if made is None:
                assert given is not each
                continue
            expected = extreme(operator.lower())(
                np, each, axis=axis, keepdims=0, select_last_index=last
            )
            np.testing.assert_array_equal(done(made), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint32"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_running_sums_and_products(dtype: str) -> None:
    ways = [*itertools.product((False, True), repeat=3)]
    for shape in [(7,), (19, 5), (3, 5, 7), (4, 6, 1500)]:
        x = drawn(shape, dtype)
        for axis, way in itertools.product(range(-len(shape), len(shape)), ways):
            form = ScanOrder(axis, *way)
            found = done(scanned(form, 2, np.copy, x))
            function = cumprod if form.product else cumsum
            how = {"exclusive": int(form.exclusive), "reverse": int(form.reverse)}
            np.testing.assert_array_equal(found, function(np, x, np.array(axis), **how))
