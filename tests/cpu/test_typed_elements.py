"""Operations on elements of any type are numpy's, bit for bit, in vectors and one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from running import require_kernels, session

import tenonnx
from models import node
from tenonnx_array.elementwise import divide
from tenonnx_array.logical import bit_shift
from tenonnx_array.quant import round_to
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.elementwise import typed
from tenonnx_cpu.elementwise.kernels import operations as o

require_kernels()

DTYPES = {code: dtype for dtype, code in typed.CODE_OF_DTYPE.items()}
DTYPES[o.BFLOAT16] = np.dtype(ml_dtypes.bfloat16)

UNARY: dict[int, Callable[..., Any]] = {
    o.NEG: np.negative, o.ABS: np.abs, o.SIGN: np.sign, o.NOT: np.invert, o.FLOOR: np.floor,
    o.CEIL: np.ceil, o.ROUND: np.rint, o.SQRT: np.sqrt, o.RECIPROCAL: np.reciprocal,
    o.RELU: lambda x: np.maximum(x, x.dtype.type(0)), o.IS_NAN: np.isnan, o.IS_INF: np.isinf,
}  # fmt: skip
BINARY: dict[int, Callable[..., Any]] = {
    o.ADD: np.add, o.SUB: np.subtract, o.MUL: np.multiply, o.MAX: np.maximum, o.MIN: np.minimum,
    o.MOD: np.remainder, o.FMOD: np.fmod, o.AND: np.bitwise_and, o.OR: np.bitwise_or,
    o.XOR: np.bitwise_xor, o.EQUAL: np.equal, o.GREATER: np.greater, o.LESS: np.less,
    o.GREATER_OR_EQUAL: np.greater_equal, o.LESS_OR_EQUAL: np.less_equal,
    o.DIV: lambda x, y: divide(np, x, y),
    o.LEFT: lambda x, y: bit_shift(np, x, y, direction="LEFT"),
    o.RIGHT: lambda x, y: bit_shift(np, x, y, direction="RIGHT"),
}  # fmt: skip
TERNARY: dict[int, Callable[..., Any]] = {
    o.WHERE: np.where,
    o.CLIP: lambda x, low, high: np.minimum(np.maximum(x, low), high),
    o.AFFINE: lambda x, factor, shift: x * factor + shift,
    o.QUANTIZE: lambda x, scale, zero: round_to(np, x / scale, zero, zero.dtype),
    o.DEQUANTIZE: lambda x, scale, zero: (x.astype(scale.dtype) - zero.astype(scale.dtype)) * scale,
}

SHAPES = [
    [(7, 133), (7, 133), (7, 133)],
    [(7, 133), (133,), ()],
    [(7, 1), (7, 133), (1, 133)],
    [(3, 1, 9), (5, 9), (3, 5, 1)],
    [(5, 60), (5, 1), (60,)],
    [(), (1, 1), (3,)],
]


def drawn(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """The whole range of integers; floats with NaN, infinities and halves."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        return np.asarray(rng.integers(ends.min, ends.max, shape, dtype, endpoint=True))
    x = np.asarray(np.round(rng.standard_normal(shape) * 50, 1)).astype(dtype)
    if x.size > 40:
        x.flat[:5] = [np.nan, np.inf, -np.inf, 0.5, -0.0]
    return x


def same(found: Any, expected: Any) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    is_float = expected.dtype.kind in "fV"
    assert np.array_equal(found, expected, equal_nan=is_float), (found, expected)


@pytest.mark.parametrize("operation", o.TAKES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operations_are_numpys(operation: int) -> None:
    function = {**UNARY, **BINARY, **TERNARY}[operation]
    count = 1 if operation in UNARY else 2 if operation in BINARY else 3
    for element in o.TAKES[operation]:
        dtype = DTYPES[element]
        for shapes in SHAPES:
            arrays = [drawn(dtype, shape, n) for n, shape in enumerate(shapes[:count])]
            if operation == o.WHERE:
                arrays[0] = drawn(np.dtype(bool), shapes[0], 0)
            if operation == o.QUANTIZE:
                arrays[0] = drawn(np.dtype(np.float32), shapes[0], 0)
            if operation in (o.QUANTIZE, o.DEQUANTIZE) and dtype.kind in "iu":
                arrays[1] = np.abs(drawn(np.dtype(np.float32), shapes[1], 1)) + np.float32(0.1)
            if operation in (o.LEFT, o.RIGHT):
                arrays[1] = arrays[1] % dtype.type(8 * dtype.itemsize + 3)
            if operation in (o.DIV, o.MOD, o.FMOD) and dtype.kind in "iu":
                arrays[1] = np.where(arrays[1] == 0, dtype.type(3), arrays[1])
            if operation == o.SQRT:
                arrays[0] = np.abs(arrays[0])
            result = np.dtype(bool) if operation in o.TO_BOOL else dtype
            if operation == o.DEQUANTIZE and dtype.kind in "iu":
                result = np.dtype(np.float32)
            made = typed.launch(operation, element, [np.asarray(x) for x in arrays], result, 2)
            same(done(made), np.asarray(function(*arrays)))


@pytest.mark.parametrize("target", DTYPES)
def test_casts_are_numpys(target: int) -> None:
    for source in DTYPES:
        if not o.is_known(target, source) or source == target:
            continue
        dtype = DTYPES[target]
        x = drawn(DTYPES[source], (5, 133), 0)
        if source in o.FLOAT_CODES and target in o.INTEGERS:  # others are the hardware's
            x = np.nan_to_num(x.astype(np.float32), nan=1, posinf=2, neginf=3)
            x = np.abs(x).astype(DTYPES[source]) % DTYPES[source].type(100)
        if target == o.FLOAT16 and source in o.INTEGERS:
            x %= DTYPES[source].type(100)
        made = typed.launch(target, source, [x[:, ::2]], dtype, 2)
        expected = x[:, ::2].astype(dtype)
        same(done(made), expected)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("operation", [o.DIV, o.MOD])
def test_quotients_of_long_integers_are_exact(operation: int, dtype: Any) -> None:
    """Also beside a whole number, where a quotient of floats would be rounded to it."""
    rng = np.random.default_rng(0)
    for bits in (20, 51, 52, 53, 62):
        y = rng.integers(1, 1 << bits // 2, (9, 64)).astype(dtype)
        x = rng.integers(1, 1 << bits - bits // 2, (9, 64)).astype(dtype) * y
        x += rng.integers(0, 3, x.shape).astype(dtype) - dtype(x.dtype.kind == "i")
        if x.dtype.kind == "i":
            x *= rng.choice([-1, 1], x.shape)
            y *= rng.choice([-1, 1], y.shape)
        made = typed.launch(operation, typed.CODE_OF_DTYPE[x.dtype], [x, y], x.dtype, 1)
        same(done(made), BINARY[operation](x, y))


@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64])
def test_divisors_of_zero_are_refused_in_any_run(op: str, kind: Any) -> None:
    x, y = (drawn(np.dtype(kind), (5, 40), n) // 2 for n in (0, 1))
    y = np.where(y == 0, kind(3), y)
    kinds = dict.fromkeys("xyz", helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    one = session([node(op, "x y", "z")], {"x": x, "y": y}, "z", kinds=kinds)
    for _ in range(3):
        (found,) = one.run(None, {"x": x, "y": y})
        same(found, BINARY[o.DIV if op == "Div" else o.MOD](x, y))
    for place in ((0, 0), (4, 39)):
        zeros = y.copy()
        zeros[place] = 0
        with pytest.raises(tenonnx.RuntimeException, match="zero"):
            one.run(None, {"x": x, "y": zeros})
    (found,) = one.run(None, {"x": x, "y": y[:, :1]})
    same(found, BINARY[o.DIV if op == "Div" else o.MOD](x, y[:, :1]))
