"""Quantization at versions, granularities and types that the backend suite leaves out."""

from __future__ import annotations

from typing import Any

import ml_dtypes as ml
import numpy as np
from case import Case

X = np.float32([[-3, -1.25, -0.75, 0.25], [0.75, 1.25, 100, 1000]])
SCALES = np.float32([0.5, 4])
ZEROS = np.uint8([10, 128])
PER_ROW = np.array([[4, 8, 8, 10], [128, 128, 153, 255]], np.uint8)
HALF = np.float32(0.5)
NONFINITE = np.float32([500, -500, np.inf, -np.inf, np.nan])
F16, BF16, E4, E5 = np.float16, ml.bfloat16, ml.float8_e4m3fn, ml.float8_e5m2
FNUZ = ml.float8_e4m3fnuz


def code(values: Any, dtype: Any) -> Any:
    return np.array(values, np.float32).astype(dtype)


def row(values: Any, dtype: Any = np.float32) -> Any:
    return np.array([values], dtype)


BLOCKS = np.float32([[1, 2], [0.5, 4]])
BLOCK_ZEROS = np.array([[0, 1], [-1, 2]], np.int8).astype(ml.int4)
SIX = np.float32([[-8, 1.5, 2.5, 6, 14, -40], [0.25, 0.75, -9, 4, 12, 40]])
SIX_AS_INT4 = np.array([[-8, 2, 2, 4, 7, -8], [-1, 1, -8, 3, 5, 7]], np.int8).astype(ml.int4)
FIVE_BACK = np.float32([[-8, 2, 2, 6, 12], [0, 1, -3.5, 4, 12]])

CASES = [
    Case("QuantizeLinear", 10, [X, HALF], np.uint8([[0, 0, 0, 0], [2, 2, 200, 255]])),
    Case("QuantizeLinear", 10, [np.int32([7, -8]), HALF, np.int8(1)], np.int8([15, -15])),
    Case("QuantizeLinear", 13, [X, SCALES, ZEROS], PER_ROW, {"axis": 0}),
    Case("QuantizeLinear", 13, [X.T, SCALES, ZEROS], PER_ROW.T, {"axis": -1}, name="last"),
    Case("QuantizeLinear", 13, [X[0], np.float32([0.5])], np.uint8([0, 0, 0, 0]), name="rank-1"),
    Case(
        "QuantizeLinear",
        19,
        [code(X, F16), F16(0.5), np.uint8(9)],
        np.uint8([[3, 7, 7, 9], [11, 11, 209, 255]]),
    ),
    Case(
        "QuantizeLinear", 19, [np.int32([6, 7, 9]), np.int32(2)], np.uint8([3, 4, 4]), name="int32"
    ),
    Case(
        "QuantizeLinear",
        19,
        [NONFINITE, HALF, E4(0)],
        code([448, -448, 448, -448, np.nan], E4),
        name="clipped",
    ),
    Case(
        "QuantizeLinear",
        19,
        [NONFINITE, HALF, E4(0)],
        code([np.nan] * 5, E4),
        {"saturate": 0},
        name="nan",
    ),
    Case(
        "QuantizeLinear",
        19,
        [NONFINITE * 200, HALF, E5(0)],
        np.array([np.inf, -np.inf, np.inf, -np.inf, np.nan], E5),
        {"saturate": 0},
        name="infinite",
    ),
    Case(
        "QuantizeLinear",
        19,
        [NONFINITE, HALF, FNUZ(0)],
        code([240, -240, 240, -240, np.nan], FNUZ),
        name="fnuz",
    ),
    Case("QuantizeLinear", 21, [SIX, BLOCKS, BLOCK_ZEROS], SIX_AS_INT4, {"block_size": 3}),
    Case(
        "QuantizeLinear",
        21,
        [SIX[:, :5], BLOCKS, BLOCK_ZEROS],
        SIX_AS_INT4[:, :5],
        {"block_size": 3},
        name="ragged",
    ),
    Case(
        "QuantizeLinear",
        21,
        [SIX.T, BLOCKS.T, BLOCK_ZEROS.T],
        SIX_AS_INT4.T,
        {"block_size": 3, "axis": 0},
        name="first",
    ),
    Case(
        "QuantizeLinear",
        21,
        [X, np.float32(0.001)],
        np.int16([[-3000, -1250, -750, 250], [750, 1250, 32767, 32767]]),
        {"output_dtype": 5},
        name="int16",
    ),
    Case(
        "QuantizeLinear",
        21,
        [X, HALF],
        code([[0, 0, 0, 0], [2, 2, 15, 15]], ml.uint4),
        {"output_dtype": 21},
        name="uint4",
    ),
    Case(
        "QuantizeLinear",
        23,
        [X, HALF],
        code([[-6, -2.5, -1.5, 0.5], [1.5, 2.5, 6, 6]], ml.float4_e2m1fn),
        {"output_dtype": 23},
    ),
    # 4099 is not a float16; the nearest is 4100.
    Case(
        "QuantizeLinear",
        23,
        [np.float32([4099]), F16(1)],
        np.uint16([4100]),
        {"output_dtype": 4},
        name="in-float16",
    ),
    Case(
        "QuantizeLinear",
        23,
        [np.float32([4099]), F16(1)],
        np.uint16([4099]),
        {"output_dtype": 4, "precision": 1},
        name="in-float32",
    ),
    Case(
        "QuantizeLinear",
        24,
        [X, code(4, ml.float8_e8m0fnu)],
        np.int8([[-1, 0, 0, 0], [0, 0, 25, 127]]),
        {"output_dtype": 3},
    ),
    Case(
        "QuantizeLinear",
        25,
        [X, HALF],
        code([[-2, -2, -2, 0], [1, 1, 1, 1]], ml.int2),
        {"output_dtype": 26},
    ),
    Case(
        "QuantizeLinear",
        25,
        [X, HALF, ml.uint2(1)],
        code([[0, 0, 0, 1], [3, 3, 3, 3]], ml.uint2),
        name="uint2",
    ),
    Case(
        "QuantizeLinear",
        28,
        [X, np.float32(4)],
        code(X / 4, ml.float6_e3m2fn),
        {"output_dtype": 28},
    ),
    Case(
        "DequantizeLinear",
        10,
        [np.uint8([0, 128, 255]), HALF, np.uint8(128)],
        np.float32([-64, 0, 63.5]),
    ),
    Case(
        "DequantizeLinear",
        10,
        [np.int32([-5, 2**24]), HALF],
        np.float32([-2.5, 2**23]),
        name="int32",
    ),
    Case(
        "DequantizeLinear",
        13,
        [PER_ROW, SCALES, ZEROS],
        np.float32([[-3, -1, -1, 0], [0, 0, 100, 508]]),
        {"axis": 0},
    ),
    Case(
        "DequantizeLinear",
        13,
        [PER_ROW.T, SCALES, ZEROS],
        np.float32([[-3, -1, -1, 0], [0, 0, 100, 508]]).T,
        name="second",
    ),
    Case("DequantizeLinear", 19, [code([[1.5, -448]], E4), F16(2)], row([3, -896], F16)),
    Case(
        "DequantizeLinear",
        19,
        [code([[1.5, -448]], E4), BF16(2)],
        row([3, -896], BF16),
        name="bf16",
    ),
    Case(
        "DequantizeLinear",
        21,
        [SIX_AS_INT4[:, :5], BLOCKS, BLOCK_ZEROS],
        FIVE_BACK,
        {"block_size": 3},
    ),
    Case(
        "DequantizeLinear",
        21,
        [SIX_AS_INT4.T, BLOCKS.T],
        (SIX_AS_INT4.astype(np.float32) * np.repeat(BLOCKS, 3, 1)).T,
        {"block_size": 3, "axis": 0},
        name="even",
    ),
    Case(
        "DequantizeLinear",
        21,
        [np.int16([-32768, 32767]), HALF, np.int16(32767)],
        np.float32([-32767.5, 0]),
        name="int16",
    ),
    Case(
        "DequantizeLinear",
        23,
        [code([-6, 0.5, 4], ml.float4_e2m1fn), HALF],
        np.array([-3, 0.25, 2], F16),
        {"output_dtype": 10},
    ),
    Case(
        "DequantizeLinear",
        24,
        [code([-6, 0.5, 4], E5), code(0.25, ml.float8_e8m0fnu)],
        np.float32([-1.5, 0.125, 1]),
        {"output_dtype": 1},
    ),
    Case(
        "DequantizeLinear",
        25,
        [code([-2, -1, 0, 1], ml.int2), HALF, ml.int2(-1)],
        np.float32([-0.5, 0, 0.5, 1]),
    ),
    Case(
        "DequantizeLinear",
        28,
        [code([-7.5, 0.125], ml.float6_e2m3fn), np.float32(2)],
        np.float32([-15, 0.25]),
    ),
    Case(
        "DynamicQuantizeLinear",
        11,
        [np.float32([0, 0])],
        (np.uint8([0, 0]), np.float32(1), np.uint8(0)),
        name="zeros",
    ),
    Case(
        "DynamicQuantizeLinear",
        11,
        [np.zeros((0, 3), np.float32)],
        (np.zeros((0, 3), np.uint8), np.float32(1), np.uint8(0)),
        name="empty",
    ),
    Case(
        "DynamicQuantizeLinear",
        11,
        [np.float32([-1, 254])],
        (np.uint8([0, 255]), np.float32(1), np.uint8(1)),
        name="unit",
    ),
]
