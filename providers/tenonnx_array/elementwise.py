"""Arithmetic, rounding, powers and trigonometry, broadcast as numpy does."""

from __future__ import annotations

import functools

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.accurate import exp, in_double
from tenonnx_array.dtypes import INTEGERS
from tenonnx_array.legacy import Function, consuming, limited_broadcast
from tenonnx_array.precision import widened
from tenonnx_array.special import erf_any

table = OperatorTable()
op = table.op

# Powers of integers that squares and products make sooner than numpy does.
MAX_SQUARED_POWER = 1 << 6

UNARY_FUNCTIONS: dict[str, Function | str] = {
    "Abs": "absolute",
    "Ceil": "ceil",
    "Exp": exp,
    "Floor": "floor",
    "Log": "log",
    "Neg": "negative",
    "Reciprocal": "reciprocal",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}
table.rows({name: consuming(function) for name, function in UNARY_FUNCTIONS.items()}, since=1)
table.rows(UNARY_FUNCTIONS, since=6)

table.rows(
    {
        "Acos": "arccos",
        "Asin": "arcsin",
        "Atan": "arctan",
        "Cos": "cos",
        "Sin": "sin",
        "Tan": in_double("tan"),
    },
    since=7,
)
table.rows(
    {
        "Acosh": "arccosh",
        "Asinh": "arcsinh",
        "Atanh": "arctanh",
        "Cosh": in_double("cosh"),
        "Erf": erf_any,
        "IsNaN": "isnan",
        "Sign": "sign",
        "Sinh": "sinh",
    },
    since=9,
)
table.rows({"Round": "rint"}, since=11)


def divide(xp: Namespace, a: Array, b: Array) -> Array:
    """Divide; integers truncate towards zero, as in C, and are not divided by zero."""
    if a.dtype not in INTEGERS:
        return xp.divide(a, b)
    _refuse_zeros(b)
    quotient = xp.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    inexact_and_negative = (quotient * b != a) & ((a < 0) != (b < 0))
    return quotient + inexact_and_negative.astype(a.dtype)


def _refuse_zeros(divisor: Array) -> None:
    """Refuse zeros among integers, by which numpy's quotient is 0; a device is not waited for."""
    if isinstance(divisor, (np.ndarray, np.generic)) and not divisor.all():
        raise ValueError("expected integers other than zero to divide by, found a zero")


def power(xp: Namespace, x: Array, y: Array) -> Array:
    """Raise ``x`` to ``y``, which may be of another dtype; the result has that of ``x``."""
    if x.dtype in INTEGERS:
        return _integer_power(xp, x, y)
    if _on_host(x, y) and x.dtype.itemsize >= 4 and bool(y == 3):
        return x * x * x  # the tanh GELU's: numpy's power takes 300 times as long
    return _power(xp, x, y) if x.dtype == y.dtype else xp.power(x, y).astype(x.dtype)


_power = in_double("power")


def _on_host(x: Array, y: Array) -> bool:
    """Return whether y is one number that is on the host, and x has the shape of both.

    Exponents on a device are not looked at: that would make the host wait.
    """
    return isinstance(y, (np.ndarray, np.generic)) and y.size == 1 and y.ndim <= x.ndim


def _integer_power(xp: Namespace, x: Array, y: Array) -> Array:
    """Wrap around; x to a negative power is 1/x truncated, and 0 for x = 0, which has none."""
    if y.dtype not in INTEGERS:
        return xp.power(x.astype(np.float64), y).astype(x.dtype)
    if x.ndim and _on_host(x, y) and 1 < (times := int(y.reshape(()))) < MAX_SQUARED_POWER:
        return _squared_power(x, times)
    exponent = y.astype(np.int64)
    result = xp.power(x.astype(np.int64), xp.maximum(exponent, 0))
    if y.dtype.kind != "u":
        parity = 1 - 2 * (exponent % 2)
        inverse = xp.where(x == 1, 1, xp.where(x == -1, parity, 0))
        result = xp.where(exponent < 0, inverse, result)
    return result.astype(x.dtype)


def _squared_power(x: Array, times: int) -> Array:
    """Multiply x and its squares; that wraps around as one product after the other does."""
    half = x if times < 4 else _squared_power(x, times // 2)
    y = half * half
    if times % 2:
        y *= x
    return y


@op("Mod", since=10)
def mod(xp: Namespace, a: Array, b: Array, *, fmod: int = 0) -> Array:
    """Return the remainder: of the divisor's sign, or with ``fmod`` of the dividend's."""
    if b.dtype in INTEGERS:
        _refuse_zeros(b)
    return xp.fmod(a, b) if fmod else xp.remainder(a, b)


ARITHMETIC: dict[str, Function | str] = {
    "Add": "add",
    "Div": divide,
    "Mul": "multiply",
    "Sub": "subtract",
}
limited = {name: limited_broadcast(function) for name, function in ARITHMETIC.items()}
table.rows({name: consuming(function) for name, function in limited.items()}, since=1)
table.rows(limited, since=6)
table.rows(ARITHMETIC, since=7)
table.rows({"Pow": limited_broadcast(power)}, since=1)
table.rows({"Pow": power}, since=7)


def maximum(xp: Namespace, *inputs: Array) -> Array:
    """Return the greatest of the inputs; NaN wins."""
    return functools.reduce(xp.maximum, inputs)


def minimum(xp: Namespace, *inputs: Array) -> Array:
    """Return the least of the inputs; NaN wins."""
    return functools.reduce(xp.minimum, inputs)


@widened
def total(xp: Namespace, *inputs: Array) -> Array:
    """Return the sum of the inputs."""
    return functools.reduce(xp.add, inputs)


@widened
def mean(xp: Namespace, *inputs: Array) -> Array:
    """Return the mean of the inputs."""
    return functools.reduce(xp.add, inputs) / len(inputs)


VARIADIC = {"Max": maximum, "Min": minimum, "Sum": total, "Mean": mean}
table.rows({name: consuming(function) for name, function in VARIADIC.items()}, since=1)
table.rows(VARIADIC, since=6)


@op("Clip", since=11)
def clip(xp: Namespace, x: Array, low: Array = None, high: Array = None) -> Array:
    """Limit to [low, high], either of which may be absent; ``high`` wins if they cross."""
    # numpy's clip makes float32 of the narrow floats of ml_dtypes, whose kind is V.
    if low is not None and high is not None and x.dtype.kind != "V":
        return xp.clip(x, low, high)
    x = x if low is None else xp.maximum(x, low)
    return x if high is None else xp.minimum(x, high)


def clip_1(
    xp: Namespace,
    x: Array,
    *,
    min: float | None = None,  # noqa: A002 - the attribute's name
    max: float | None = None,  # noqa: A002
) -> Array:
    """Limit to attributes; a bound that the dtype cannot hold is infinite."""
    low, high = (None if bound is None else x.dtype.type(bound) for bound in (min, max))
    return clip(xp, x, low, high)


FLOAT32_MAX = float(np.finfo(np.float32).max)


@op("Clip", since=6)
def clip_6(
    xp: Namespace,
    x: Array,
    *,
    min: float = -FLOAT32_MAX,  # noqa: A002 - the attribute's name
    max: float = FLOAT32_MAX,  # noqa: A002
) -> Array:
    """Limit to attributes, which default to float32's range whatever the dtype."""
    return clip_1(xp, x, min=min, max=max)


table.rows({"Clip": consuming(clip_1)}, since=1)


@op("IsInf", since=10)
def is_inf(xp: Namespace, x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Return which elements are infinite, of the signs asked for."""
    infinite = xp.isinf(x)
    if not detect_negative:
        infinite = infinite & (x > 0)
    return infinite if detect_positive else infinite & (x < 0)
