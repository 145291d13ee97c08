"""NaN in operators that compare: a row for each rule.

The specification gives few of them. They are numpy's, which ONNX's reference implementation
calls, and torch's where that is written out (pooling). docs/onnxruntime.md has the rules by
source, beside onnxruntime's.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from case import Case

NAN, INF = float("nan"), float("inf")


def f32(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.float32)


X = f32(1, NAN, INF, 3, -INF, NAN, -0.0, 0)
LONG = np.arange(70, dtype=np.float32)
LONG[[5, 40]] = NAN
"""Longer than any vector of a kernel, NaN within one and behind another."""
IMAGE = LONG[:64].reshape(1, 1, 8, 8)
TABLE = LONG.reshape(7, 10)
HALF = np.float32(0.5)
BOXES = f32([0, 0, 1, 1], [0, 0, 1, 1], [0, 0, NAN, 1], [5, 5, 6, 6])[None]
SCORES = f32([[0.5, NAN, 0.9, 0.4]])


def of(numbers: Any, places: Any = (5, 40)) -> np.ndarray:
    """Numbers, of which some are not."""
    array = np.array(np.broadcast_to(np.float32(numbers), 70))
    array[list(places)] = NAN
    return array


def bytes_of(numbers: Any) -> Any:
    """Numbers as int8, clipped; the least if there is none."""
    return np.clip(np.where(np.isnan(numbers), -128, numbers), -128, 127).astype(np.int8)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


GREATEST_FIRST = f32(NAN, NAN, INF, 3, 1, -0.0, 0, -INF), ints(1, 5, 2, 3, 0, 6, 7, 4)
LEAST_FIRST = f32(-INF, -0.0, 0, 1, 3, INF, NAN, NAN), ints(4, 6, 7, 0, 3, 2, 1, 5)

PLAIN = {"keepdims": 0}
LAST = {"keepdims": 0, "select_last_index": 1}
POOL = {"kernel_shape": (2, 2), "strides": (2, 2)}
POOLED = f32([9, 11, NAN, 15], [25, 27, 29, 31], [NAN, 43, 45, 47], [57, 59, 61, 63])[None, None]
PLACES = ints(9, 11, 5, 15, 25, 27, 29, 31, 40, 43, 45, 47, 57, 59, 61, 63).reshape(1, 1, 4, 4)

ROWS: list[tuple[str, int, list[Any], Any, dict[str, Any]]] = [
    # It is the greatest: numpy.sort, torch.topk.
    ("TopK", 11, [X, ints(8)], GREATEST_FIRST, {}),
    ("TopK", 11, [X, ints(8)], LEAST_FIRST, {"largest": 0}),
    ("TopK", 11, [LONG, ints(3)], (f32(NAN, NAN, 69), ints(5, 40, 69)), {}),
    ("TopK", 11, [LONG, ints(6)], (f32(0, 1, 2, 3, 4, 6), ints(0, 1, 2, 3, 4, 6)), {"largest": 0}),
    # It is the greatest and the least: numpy.argmax, numpy.maximum, numpy.max.
    ("ArgMax", 13, [X], ints(1)[0], PLAIN),
    ("ArgMax", 13, [X], ints(5)[0], LAST),
    ("ArgMin", 13, [X], ints(1)[0], PLAIN),
    ("ArgMin", 13, [X], ints(5)[0], LAST),
    ("Hardmax", 13, [X[None]], f32(0, 1, 0, 0, 0, 0, 0, 0)[None], {}),
    ("Max", 13, [LONG, np.float32(30)], of(np.maximum(np.arange(70), 30)), {}),
    ("Max", 13, [np.float32(30), LONG], of(np.maximum(np.arange(70), 30)), {}),
    ("Min", 13, [LONG, np.float32(30)], of(np.minimum(np.arange(70), 30)), {}),
    ("Min", 13, [np.float32(30), LONG], of(np.minimum(np.arange(70), 30)), {}),
    ("Max", 13, [X, np.float32(NAN)], np.full(8, NAN, np.float32), {}),
    ("ReduceMax", 18, [LONG], np.float32(NAN), PLAIN),
    ("ReduceMin", 18, [LONG], np.float32(NAN), PLAIN),
    ("ReduceMax", 18, [TABLE, ints(0)], f32(NAN, 61, 62, 63, 64, NAN, 66, 67, 68, 69), PLAIN),
    ("ReduceMin", 18, [TABLE, ints(1)], f32(NAN, 10, 20, 30, NAN, 50, 60), PLAIN),
    ("GlobalMaxPool", 1, [IMAGE], f32([[[[NAN]]]])[0], {}),
    # The same: torch.nn.functional.max_pool2d.
    ("MaxPool", 12, [IMAGE], POOLED, POOL),
    ("MaxPool", 12, [IMAGE], (POOLED, PLACES), POOL),
    (
        "ScatterElements",
        18,
        [f32(1, NAN, 3, 4), ints(0, 1, 2, 2), f32(NAN, 5, 2, NAN)],
        f32(NAN, NAN, NAN, 4),
        {"reduction": "max"},
    ),
    (
        "ScatterND",
        18,
        [f32(1, NAN, 3, 4), ints(0, 1, 2)[:, None], f32(NAN, 5, 2)],
        f32(NAN, NAN, 2, 4),
        {"reduction": "min"},
    ),
    # It stays: numpy.clip, numpy.sign; a bound that is NaN makes all of them NaN.
    ("Clip", 13, [LONG, np.float32(2), np.float32(6)], of(np.clip(np.arange(70), 2, 6)), {}),
    ("Clip", 13, [LONG, np.float32(NAN)], np.full(70, NAN, np.float32), {}),
    ("Clip", 13, [LONG, None, np.float32(NAN)], np.full(70, NAN, np.float32), {}),
    ("Relu", 14, [LONG], LONG, {}),
    ("Relu", 14, [X], f32(1, NAN, INF, 3, 0, NAN, 0, 0), {}),
    ("LeakyRelu", 16, [-LONG], of(np.arange(70) * np.float32(-0.5)), {"alpha": 0.5}),
    ("PRelu", 16, [-LONG, f32(0.5)], of(np.arange(70) * np.float32(-0.5)), {}),
    ("HardSigmoid", 6, [X], f32(0.7, NAN, 1, 1, 0, NAN, 0.5, 0.5), {}),
    ("HardSwish", 14, [X], f32(2 / 3, NAN, INF, 3, NAN, NAN, 0, 0), {}),
    ("Elu", 6, [X], f32(1, NAN, INF, 3, -1, NAN, 0, 0), {}),
    ("Celu", 12, [X], f32(1, NAN, INF, 3, -1, NAN, 0, 0), {}),
    ("Sign", 13, [X], f32(1, NAN, 1, 1, -1, NAN, 0, 0), {}),
    # No comparison with it is true: IEEE 754, and the formulas of the specification.
    ("ThresholdedRelu", 10, [X], f32(0, 0, INF, 3, 0, 0, 0, 0), {}),
    ("Shrink", 9, [X], f32(1, 0, INF, 3, -INF, 0, 0, 0), {}),
    ("Greater", 13, [X, f32(1)], np.array([0, 0, 1, 1, 0, 0, 0, 0], bool), {}),
    ("LessOrEqual", 16, [X, X], np.array([1, 0, 1, 1, 1, 0, 1, 1], bool), {}),
    ("NonMaxSuppression", 11, [BOXES, SCORES, ints(9), f32(0.5), f32(0.1)],
     np.array([[0, 0, 2], [0, 0, 0], [0, 0, 3]]), {}),
    # It is the least: onnxruntime. The greatest zero point, where an infinite range has none: the
    # reference implementation.
    ("QuantizeLinear", 10, [X, HALF, np.uint8(100)], np.uint8([102, 0, 255, 106, 0, 0, 100, 100]),
     {}),
    ("QuantizeLinear", 10, [LONG, HALF, np.int8(-5)], bytes_of(2 * LONG - 5), {}),
    ("QuantizeLinear", 13, [LONG, np.full(70, HALF), np.full(70, -5, np.int8)],
     bytes_of(2 * LONG - 5), {"axis": 0}),
    ("QuantizeLinear", 21, [X, HALF, np.int16(7)],
     np.int16([9, -32768, 32767, 13, -32768, -32768, 7, 7]), {}),
    ("QuantizeLinear", 21, [X, HALF, np.array(2, ml_dtypes.int4)],
     np.array([4, -8, 7, 7, -8, -8, 2, 2], ml_dtypes.int4), {}),
    ("DynamicQuantizeLinear", 11, [f32(NAN, *range(-55, 201), NAN)],
     (np.uint8([0, *range(256), 0]), np.float32(1), np.uint8(55)), {}),
    ("DynamicQuantizeLinear", 11, [f32(1, NAN, -INF, 3)],
     (np.uint8([255, 0, 0, 255]), np.float32(INF), np.uint8(255)), {}),
    ("DynamicQuantizeLinear", 11, [f32(1, NAN, INF, -3)],
     (np.uint8([0, 0, 0, 0]), np.float32(INF), np.uint8(0)), {}),
    # It is not zero: IEEE 754.
    ("NonZero", 13, [X], ints(0, 1, 2, 3, 4, 5)[None], {}),
    ("Cast", 13, [X], np.array([1, 1, 1, 1, 1, 1, 0, 0], bool), {"to": 9}),
    # All of them are one, behind the numbers: numpy.unique.
    ("Unique", 11, [X], (f32(-INF, 0, 1, 3, INF, NAN), ints(4, 6, 0, 3, 2, 1),
                         ints(2, 5, 4, 3, 0, 5, 1, 1), ints(1, 2, 1, 1, 1, 2)), {}),
]  # fmt: skip

CASES = [
    Case(op, version, inputs, expected, attributes, name=f"nan-{place}")
    for place, (op, version, inputs, expected, attributes) in enumerate(ROWS)
]
