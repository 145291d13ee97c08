"""Arithmetic at versions, and with values, that the backend suite leaves out."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from case import Case
from formula import CONSUMED, POSITIVE, SPECIAL, UNIT, X, in64

erf = np.vectorize(math.erf)

UNARY_1 = [
    ("Abs", np.abs, X),
    ("Ceil", np.ceil, X),
    ("Exp", np.exp, X),
    ("Floor", np.floor, X),
    ("Log", np.log, POSITIVE),
    ("Neg", np.negative, X),
    ("Reciprocal", np.reciprocal, POSITIVE),
    ("Sqrt", np.sqrt, POSITIVE),
    ("Tanh", np.tanh, X),
]
UNARY = [
    ("Acos", 7, np.arccos, UNIT),
    ("Asin", 7, np.arcsin, UNIT),
    ("Atan", 7, np.arctan, X),
    ("Sin", 7, np.sin, X),
    ("Tan", 7, np.tan, UNIT),
    ("Acosh", 9, np.arccosh, POSITIVE + 1),
    ("Asinh", 9, np.arcsinh, X),
    ("Atanh", 9, np.arctanh, UNIT),
    ("Cosh", 9, np.cosh, X),
    ("Sinh", 9, np.sinh, X),
    ("Erf", 9, erf, X),
    ("Ceil", 6, np.ceil, X),
    ("Floor", 6, np.floor, X),
    ("Log", 6, np.log, POSITIVE),
    ("Reciprocal", 6, np.reciprocal, POSITIVE),
]
BINARY = [
    ("Add", np.add),
    ("Sub", np.subtract),
    ("Mul", np.multiply),
    ("Div", np.divide),
    ("Pow", np.power),
]
PART = POSITIVE[0, ..., 0]
I32 = np.iinfo(np.int32)
A = np.array([7, -7, 7, -7, 6, I32.min], np.int32)
B = np.array([2, 2, -2, -2, -3, -1], np.int32)
THREE = X[:, :, :, :3]
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def float_mod(dtype: type) -> Case:
    inf, nan = np.inf, np.nan
    a = np.array([0.0, 5.5, -5.5, inf, 3.0, 3.0, -3.0, -3.0, 3.0, nan], dtype)
    b = np.array([-2.0, -2.0, 2.0, 2.0, 0.0, inf, inf, -inf, -inf, 1.0], dtype)
    c = np.array([-0.0, -0.5, 0.5, nan, nan, 3.0, inf, -3.0, -inf, nan], dtype)
    return Case("Mod", 28, [a, b], c, name=f"specials-{np.dtype(dtype)}")


CASES = [
    *(Case(op, 1, [x], in64(f), CONSUMED) for op, f, x in UNARY_1),
    *(Case(op, version, [x], in64(f)) for op, version, f, x in UNARY),
    *(
        Case(op, version, [x, y], in64(lambda a, b, f=f: f(a, b[:, :, None])), attributes, name=n)
        for op, f in BINARY
        for x, y in [(POSITIVE, PART)]
        for version, n, attributes in [
            (1, "axis", {"broadcast": 1, "axis": 1} | ({} if op == "Pow" else CONSUMED)),
            (1, "negative-axis", {"broadcast": 1, "axis": -3}),
        ]
    ),
    Case("Add", 6, [X, X[0, 0]], np.add, {"broadcast": 1}, name="suffix"),
    Case("Add", 6, [X, np.ones((1, 1), np.float32)], X + 1, {"broadcast": 1}, name="one-element"),
    Case("Mul", 6, [X, X], np.square(X), name="equal-shapes"),
    Case("Mul", 13, [X, X[0]], np.multiply),
    Case("Pow", 7, [POSITIVE, X[0]], in64(np.power)),
    Case("Pow", 7, [X, np.float32(3)], in64(lambda x, _: x**3), name="cube"),
    Case("Pow", 7, [X[0, 0, 0], np.full((1, 1), 3, np.float32)], X[:1, 0, 0] ** 3, name="rank"),
    Case("Pow", 12, [A, np.array([3], np.uint8)], A**3, name="wraps"),
    Case(
        "Pow",
        12,
        [np.array([1, -1, -1, 2, 0, 5], np.int64), np.array([-3, -3, -4, -1, 0, 2], np.int32)],
        np.array([1, -1, 1, 0, 1, 25], np.int64),
        name="negative-integers",
    ),
    Case("Pow", 12, [A[:4], np.float32(2)], A[:4] ** 2, name="float-exponent"),
    Case("Pow", 12, [POSITIVE, np.array([2, -1, 0, 1, 3])], in64(np.power), name="int-exponent"),
    Case("Pow", 15, [X.astype(ml_dtypes.bfloat16), np.int64(2)], in64(np.power), name="bfloat16"),
    Case("Div", 14, [A, B], np.array([3, -3, -3, 3, -2, I32.min], np.int32), name="truncates"),
    Case("Div", 14, [A.astype(np.uint8), np.uint8(7)], A.astype(np.uint8) // 7, name="unsigned"),
    Case("Mod", 10, [A, B], np.array([1, 1, -1, -1, 0, 0], np.int32)),
    Case("Mod", 10, [A, B], np.array([1, -1, 1, -1, 0, 0], np.int32), {"fmod": 1}, name="fmod"),
    *(float_mod(dtype) for dtype in FLOATS),
    *(Case(op, v, [X, -X], np.abs(X), at) for op in ["Max"] for v, at in [(1, CONSUMED), (12, {})]),
    *(
        Case(op, v, [X, -X], -np.abs(X), at)
        for op in ["Min"]
        for v, at in [(1, CONSUMED), (12, {})]
    ),
    Case("Max", 8, [X, X[0], np.float32(0)], np.maximum(np.maximum(X, X[0]), 0), name="broadcast"),
    Case("Max", 13, [np.float32([1, np.nan]), np.float32([np.nan, 1])], np.full(2, np.nan, "f4")),
    Case("Sum", 1, [X, X, X], in64(lambda a, b, c: a + b + c), CONSUMED),
    Case("Sum", 8, [X, X[0], THREE[0, 0, 0, :1]], in64(lambda a, b, c: a + b + c)),
    Case("Mean", 1, [X, 2 * X], in64(lambda a, b: (a + b) / 2), CONSUMED),
    Case("Mean", 6, [X], X),
    Case("Mean", 8, [X, X[0], X[0, 0]], in64(lambda a, b, c: (a + b + c) / 3)),
    Case("Mean", 13, [np.full(2, 6e4, np.float16)] * 2, np.full(2, 6e4, np.float16), name="wide"),
    Case("Clip", 1, [X], np.clip(X, -0.5, 0.25), {"min": -0.5, "max": 0.25} | CONSUMED),
    Case("Clip", 1, [SPECIAL], np.maximum(SPECIAL, 0), {"min": 0.0}, name="open"),
    Case("Clip", 6, [X], np.minimum(X, 0.25), {"max": 0.25}),
    Case("Clip", 6, [X.astype(np.float16)], X.astype(np.float16), name="float16"),
    Case("Clip", 12, [A, np.int32(-6), np.int32(6)], np.clip(A, -6, 6)),
    Case("Clip", 12, [A, None, np.int32(3)], np.minimum(A, 3), name="no-minimum"),
    Case("Clip", 13, [X, np.float32(1), np.float32(-1)], np.full_like(X, -1), name="crossed"),
    Case("IsNaN", 9, [SPECIAL], np.arange(7) == 6),
    Case("IsNaN", 13, [SPECIAL.astype(ml_dtypes.bfloat16)], np.arange(7) == 6),
    Case("IsInf", 10, [SPECIAL], np.array([0, 0, 0, 0, 1, 1, 0], bool)),
    Case("IsInf", 10, [SPECIAL], np.arange(7) == 4, {"detect_negative": 0}, name="positive"),
    Case("IsInf", 10, [SPECIAL], np.arange(7) == 5, {"detect_positive": 0}, name="negative"),
    Case(
        "IsInf",
        20,
        [SPECIAL.astype(ml_dtypes.float8_e5m2)],
        np.zeros(7, bool),
        {"detect_negative": 0, "detect_positive": 0},
        name="neither",
    ),
    Case(
        "Erf", 9, [np.array([0, 1, -9, 9], np.int8)], np.array([0, 0, -1, 1], np.int8), name="int"
    ),
    Case(
        "Round",
        22,
        [np.array([0.5, 1.5, -2.5], ml_dtypes.bfloat16)],
        np.array([0, 2, -2], ml_dtypes.bfloat16),
    ),
]
