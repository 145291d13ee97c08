"""Casts, value by value, from the tables of the specification of ``Cast``."""

from __future__ import annotations

from typing import Any

import ml_dtypes as ml
import numpy as np
from case import Case

FLOAT, INT8, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE = 1, 3, 6, 7, 8, 9, 10, 11
BFLOAT16, E4M3, E4M3FNUZ, E5M2, E5M2FNUZ, UINT4, INT4, E2M1, E8M0 = range(16, 25)
UINT2, INT2, E2M3, E3M2 = range(25, 29)
inf, nan = np.inf, np.nan


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def strings(*values: str) -> np.ndarray:
    return np.array(values, object)


WIDE = f32(1, 1e6, -1e6, inf, -inf, nan, 17.3)
FLOAT8 = {
    E4M3: (ml.float8_e4m3fn, 448, nan, nan, 18),
    E4M3FNUZ: (ml.float8_e4m3fnuz, 240, nan, nan, 18),
    E5M2: (ml.float8_e5m2, 57344, inf, -inf, 16),
    E5M2FNUZ: (ml.float8_e5m2fnuz, 57344, nan, nan, 16),
}
POWERS = f32(1, 1.25, 1.5, 1.75, 2, 0, inf, nan, 2.0**-127, 2.0**-130)


def float8_cases() -> list[Case]:
    cases = []
    for to, (dtype, most, plus, minus, near) in FLOAT8.items():
        fnuz = to in (E4M3FNUZ, E5M2FNUZ)
        old = [nan, nan] if fnuz else [most, -most]
        for version, infinities in [(19, old), (28, [most, -most])]:
            answer = np.array([1, most, -most, *infinities, nan, near], dtype)
            cases.append(Case("Cast", version, [WIDE], answer, {"to": to}, name=dtype.__name__))
        answer = np.array([1, plus, minus, plus, minus, nan, near], dtype)
        unlimited = {"to": to, "saturate": 0}
        cases.append(Case("Cast", 23, [WIDE], answer, unlimited, name=f"{dtype.__name__}-overflow"))
        like = [WIDE, np.zeros(1, dtype)]
        limited = np.array([1, most, -most, *old, nan, near], dtype)
        cases.append(Case("CastLike", 21, like, limited, name=dtype.__name__))
    return cases


def e8m0(mode: str, saturate: int, *values: float) -> Case:
    answer = np.array(values, np.float32).astype(ml.float8_e8m0fnu)
    attributes = {"to": E8M0, "round_mode": mode, "saturate": saturate}
    return Case("Cast", 24, [POWERS], answer, attributes, name=f"{mode}-{saturate}")


def cast(x: Any, to: int, answer: Any, name: str, version: int = 25) -> Case:
    return Case("Cast", version, [x], answer, {"to": to}, name=name)


LEAST, MOST = 2.0**-127, 2.0**127
DECIMALS = f32(0.1, 314.15926, 1e-7, 1e10, 100, -0.0, inf, -inf, nan)
WRITTEN = strings("0.1", "314.15927", "0.0000001", "10000000000", "100", "-0", "INF", "-INF", "NaN")
READ = strings("3.14", "1e-5", "1E8", "+INF", "inf", "-Inf", "nAn", " 7 ")

CASES = [
    *float8_cases(),
    e8m0("up", 1, 1, 2, 2, 2, 2, LEAST, MOST, nan, LEAST, LEAST),
    e8m0("nearest", 0, 1, 1, 2, 2, 2, nan, nan, nan, LEAST, nan),
    e8m0("nearest", 1, 1, 1, 2, 2, 2, LEAST, MOST, nan, LEAST, LEAST),
    e8m0("down", 1, 1, 1, 1, 1, 2, LEAST, MOST, nan, LEAST, LEAST),
    Case("Cast", 1, [f32(1.9, -1.9)], np.array([1, -1], np.int32), {"to": "INT32"}),
    Case("Cast", 1, [np.array([True, False])], np.float16([1, 0]), {"to": "FLOAT16"}, name="bool"),
    cast(np.int16([200, -200, 7]), INT8, np.int8([-56, 56, 7]), "wraps", 6),
    cast(f32(0, -0.0, 0.1, nan, inf), BOOL, np.array([0, 0, 1, 1, 1], bool), "bool", 13),
    cast(np.float64([1e39, 1.5]), FLOAT, f32(inf, 1.5), "overflow", 13),
    cast(np.float64([1e5, -1e5, 1]), FLOAT16, np.float16([inf, -inf, 1]), "overflow-16", 13),
    cast(DECIMALS, STRING, WRITTEN, "written", 9),
    cast(np.float64([0.1]), STRING, strings("0.1"), "written-double", 13),
    cast(np.array([0.1], ml.bfloat16), STRING, strings("0.100097656"), "written-bfloat16", 13),
    cast(np.float16([0.1]), STRING, strings("0.099975586"), "written-float16", 9),
    cast(np.array([[True], [False]]), STRING, np.array([["1"], ["0"]], object), "written-bool", 9),
    cast(np.int64([-(2**63), 7]), STRING, strings(str(-(2**63)), "7"), "written-int", 9),
    cast(np.zeros((0, 3), np.float32), STRING, np.zeros((0, 3), object), "written-empty", 9),
    cast(READ, FLOAT, f32(3.14, 1e-5, 1e8, inf, inf, -inf, nan, 7), "read", 9),
    cast(strings("100.5", "-7", "1e3"), INT64, np.int64([100, -7, 1000]), "read-int", 9),
    cast(strings("300", "-1"), INT8, np.int8([44, -1]), "read-wraps", 9),
    cast(strings(str(2**64 - 1)), 13, np.uint64([2**64 - 1]), "read-uint64", 9),
    cast(strings("0", "0.5"), BOOL, np.array([False, True]), "read-bool", 9),
    cast(strings("1e9", "-0.4"), E4M3, np.array([448, -0.4], ml.float8_e4m3fn), "read-float8", 19),
    cast(np.array("5", object), INT32, np.array(5, np.int32), "read-scalar", 13),
    cast(f32(7.4, -9, 6.9), INT4, np.array([7, 7, 6], ml.int4), "int4"),
    cast(np.array([-1, 7], ml.int4), UINT2, np.array([3, 3], ml.uint2), "int4-uint2"),
    cast(np.array([-1, 7], ml.int4), E2M3, np.array([-1, 7], ml.float6_e2m3fn), "int4-e2m3", 28),
    cast(np.array([1, 3], ml.uint2), INT2, np.array([1, -1], ml.int2), "uint2-int2"),
    cast(f32(6.5, -9, 0.3, 5.1), E2M1, np.array([6, -6, 0.5, 6], ml.float4_e2m1fn), "e2m1"),
    cast(f32(8, -0.3, 7.4), E2M3, np.array([7.5, -0.25, 7.5], ml.float6_e2m3fn), "e2m3", 28),
    cast(f32(99, -0.3, 7.4), E3M2, np.array([28, -0.3125, 7], ml.float6_e3m2fn), "e3m2", 28),
    cast(
        np.array([2.0**10], ml.float8_e8m0fnu), E5M2, np.array([1024], ml.float8_e5m2), "e8m0-e5m2"
    ),
    cast(np.int64([2**40, -3]), E4M3, np.array([448, -3], ml.float8_e4m3fn), "int-float8"),
    Case("CastLike", 15, [f32(1.5), np.int8([0])], np.int8([1])),
    Case("CastLike", 15, [f32(1.5), strings("")], strings("1.5"), name="string"),
    Case(
        "CastLike", 24, [f32(1.5), np.ones(1, ml.float8_e8m0fnu)], np.array([2], ml.float8_e8m0fnu)
    ),
    *(Case("Identity", v, [x], x) for v in (1, 14) for x in (DECIMALS, READ)),
    Case("Identity", 21, [[DECIMALS, WIDE]], [DECIMALS, WIDE], name="sequence"),
]
