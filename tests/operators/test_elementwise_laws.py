from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tenonnx_array import TABLE
from tenonnx_array.cast import convert
from tenonnx_array.dtypes import FLOAT32_DTYPE, INTEGERS, every_dtype
from tenonnx_array.numerals import from_strings, to_strings
from tenonnx_array.special import erf

OPSET = 28
SMALL = [d for d in every_dtype() if d.kind == "V"]
NAMES = """
    Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid
    HardSwish Identity LeakyRelu Log LogSoftmax LpNormalization Max Mean Min Mish Neg Reciprocal
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare Relu Round Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt
    Sum Swish Tan Tanh ThresholdedRelu
"""
UNARY = NAMES.split()
REAL = [d for d in every_dtype() if d.kind != "c"]
ROUNDING = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-20, "float64": 0.0}


def kernel(op: str, version: int = OPSET, **attributes: Any) -> Any:
    found = TABLE.find("", op, version)
    assert found is not None
    return found.bind(np, attributes, 1)


def reals(dtype: type, **kwargs: Any) -> Any:
    elements = st.floats(allow_nan=False, allow_infinity=False, width=32, **kwargs)
    return hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=3), elements=elements)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("op", UNARY)
def test_dtype_stays_and_small_floats_round_once(op: str, dtype: type) -> None:
    x = np.array([0.1, 0.3, 0.7, 0.9], dtype) + np.array(1 if op == "Acosh" else 0, dtype)
    x.setflags(write=False)
    with np.errstate(all="ignore"):
        actual, wide = kernel(op)(x), kernel(op)(x.astype(np.float64))
    assert actual.dtype == x.dtype
    rtol = ROUNDING[np.dtype(dtype).name]
    np.testing.assert_allclose(actual.astype(np.float64), wide, rtol, 0)


@pytest.mark.parametrize("op", UNARY)
def test_scalars_and_empty_arrays(op: str) -> None:
    empty = np.zeros((0, 3), np.float32)
    with np.errstate(all="ignore"):
        if not op.startswith("Reduce"):
            assert kernel(op)(empty).shape == empty.shape
        if op not in ("Softmax", "LogSoftmax", "LpNormalization"):
            for scalar in (np.float32(0.5), np.array(0.5, np.float32)):
                result = kernel(op)(scalar)
                assert result.dtype == np.float32
                assert result.shape == ()


@given(st.floats(width=32))
def test_erf_float32(x: float) -> None:
    actual = float(erf(np, np.float32(x)))
    if math.isnan(x):
        assert math.isnan(actual)
    else:
        exact = math.erf(x)
        assert abs(actual - exact) <= 4 * float(np.spacing(np.float32(abs(exact))))


@given(st.floats(-7, 7))
def test_erf_float64(x: float) -> None:
    assert float(erf(np, np.float64(x))) == pytest.approx(math.erf(x), rel=5e-16, abs=0)


@given(st.integers(-128, 127), st.integers(-128, 127).filter(bool))
def test_integer_division_and_its_remainders(a: int, b: int) -> None:
    x, y = np.array([a], np.int32), np.array([b], np.int32)
    (quotient,), (floor,), (truncated,) = (
        kernel("Div")(x, y),
        kernel("Mod")(x, y),
        kernel("Mod", fmod=1)(x, y),
    )
    assert quotient == math.trunc(a / b)
    assert floor == a % b
    assert quotient * b + truncated == a


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint64])
def test_integers_are_not_divided_by_zero(dtype: Any) -> None:
    x, low = np.array([1, 2, 3], dtype), np.array([np.iinfo(dtype).min], dtype)
    for divide in (kernel("Div"), kernel("Mod"), kernel("Mod", fmod=1)):
        with pytest.raises(ValueError, match="zero"):
            divide(x, np.array([1, 0, 2], dtype))
        assert divide(x[:0], x[:0]).size == 0
    if low < 0:
        with np.errstate(over="ignore"):
            assert kernel("Div")(low, -x[:1]) == low
            assert kernel("Mod")(low, -x[:1]) == 0


@given(st.lists(st.integers(-5, 5), min_size=1), st.integers(-3, 3))
def test_integer_power(x: list[int], y: int) -> None:
    base = np.array([n or 1 for n in x], np.int64)
    exact = [math.trunc(float(n) ** y) for n in base]
    assert kernel("Pow")(base, np.array(y)).tolist() == exact


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_integer_powers_wrap(dtype: Any) -> None:
    x = np.array([-7, -2, -1, 0, 1, 2, 3, 100, np.iinfo(np.int64).max], np.int64).astype(dtype)
    bits = 8 * x.itemsize
    for times in range(70):
        exact = np.array([pow(int(n), times, 1 << bits) for n in x], np.uint64).astype(dtype)
        np.testing.assert_array_equal(kernel("Pow")(x, np.array([times])), exact)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-40, 40))
def test_shifts_are_python_s(x: int, y: int) -> None:
    inside = 0 <= y < 32
    a, n = np.array([x], np.int32), np.array([y], np.int32)
    assert kernel("BitShift", direction="RIGHT")(a, n) == (x >> y if inside else -(x < 0))
    left = kernel("BitShift", direction="LEFT")(a, n)
    assert left == (np.int64(x) << np.int64(y if inside else 63)).astype(np.int32)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_every_value_of_a_small_type_survives_float32(dtype: np.dtype[Any]) -> None:
    codes = np.arange(2 ** min(16, 8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    x = codes.view(dtype)
    x = x[np.isfinite(x.astype(np.float32))]
    back = convert(np, convert(np, x, FLOAT32_DTYPE), dtype)
    np.testing.assert_array_equal(back.astype(np.float32), x.astype(np.float32))


@pytest.mark.parametrize("source", REAL, ids=str)
@pytest.mark.parametrize("target", REAL, ids=str)
def test_every_pair_of_types_casts(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    one = np.array(["1"], object) if source.kind == "O" else np.ones(1).astype(source)
    cast = convert(np, one, target)
    assert cast.dtype == target
    value = float(cast.astype(object if target.kind == "O" else np.float64)[0])
    assert value == (-1 if one.dtype in INTEGERS and one[0] != 1 else 1)


@given(reals(np.float32) | reals(np.float64) | hnp.arrays(np.int64, 3) | hnp.arrays(np.uint8, 2))
def test_numbers_survive_strings(x: Any) -> None:
    written = to_strings(x)
    assert all("e" not in text for text in written.ravel())
    np.testing.assert_array_equal(from_strings(written, x.dtype), x)


@pytest.mark.parametrize("word", ["1_0", "١", "1\u00a0", "0x10", "1d", ""])
@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_words_are_no_numbers(word: str, kind: type) -> None:
    with pytest.raises(ValueError, match="spell numbers"):
        from_strings(np.array(["1", word], object), np.dtype(kind))


@given(reals(np.float32, min_value=-1e4, max_value=1e4))
def test_activations_stay_between_their_asymptotes(x: Any) -> None:
    with np.errstate(all="ignore"):
        assert np.all((kernel("Sigmoid")(x) >= 0) & (kernel("Sigmoid")(x) <= 1))
        assert np.all(kernel("Softplus")(x) >= np.maximum(x, 0))
        assert np.all(kernel("Elu")(x) >= -1)
        assert np.all(np.abs(kernel("Gelu")(x)) <= np.abs(x))
        tanh = kernel("Gelu", approximate="tanh")(x)
        np.testing.assert_allclose(kernel("Gelu")(x), tanh, rtol=1e-3, atol=1e-3)
