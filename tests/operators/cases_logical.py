"""Comparisons, logic and bits at versions, and with values, that the backend suite leaves out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from case import Case
from formula import RNG, SPECIAL, X

BOOLS = RNG.integers(0, 2, (2, 3, 4, 5)).astype(bool)
INTS = RNG.integers(-2, 3, (2, 3, 4, 5)).astype(np.int64)
LEGACY = [
    ("And", np.logical_and, BOOLS),
    ("Or", np.logical_or, BOOLS),
    ("Xor", np.logical_xor, BOOLS),
    ("Equal", np.equal, INTS),
    ("Greater", np.greater, X),
    ("Less", np.less, X),
]
BITS = np.array([1, -1, 64, -128, 5, -5, 5, -5], np.int8)
SHIFT = np.array([7, 7, 1, 1, 8, 8, -1, -1], np.int8)

CASES = [
    *(
        Case(op, 1, [x, x[1, :, :, 0]], f(x, x[1, :, :, :1]), {"broadcast": 1, "axis": 1})
        for op, f, x in LEGACY
    ),
    Case("Equal", 7, [INTS, INTS[0]], np.equal),
    Case("Equal", 11, [X, X[0]], np.equal),
    Case("Equal", 13, [SPECIAL, SPECIAL], np.arange(7) != 6, name="nan"),
    Case("Equal", 19, [np.array(["a", "b"], object), np.array(["a"], object)], np.arange(2) == 0),
    Case("Greater", 7, [X, X[0]], np.greater),
    Case("Greater", 9, [INTS, INTS[0]], np.greater),
    Case("Less", 7, [X, X[0]], np.less),
    Case("Less", 9, [INTS, INTS[0]], np.less),
    Case("GreaterOrEqual", 12, [INTS, INTS[0]], np.greater_equal),
    Case("LessOrEqual", 12, [INTS, INTS[0]], np.less_equal),
    Case(
        "Where",
        9,
        [np.array([True, False]), np.array([["x"], ["y"]], object), np.array("z", object)],
        np.array([["x", "z"], ["y", "z"]], object),
        name="strings",
    ),
    Case(
        "BitShift",
        11,
        [np.uint16([1, 3, 0xFFFF]), np.uint16([15, 16, 4])],
        np.uint16([0x8000, 0, 0xFFF0]),
        {"direction": "LEFT"},
    ),
    Case(
        "BitShift",
        28,
        [BITS, SHIFT],
        np.array([-128, -128, -128, 0, 0, 0, 0, 0], np.int8),
        {"direction": "LEFT"},
        name="left",
    ),
    Case(
        "BitShift",
        28,
        [BITS, SHIFT],
        np.array([0, -1, 32, -64, 0, -1, 0, -1], np.int8),
        {"direction": "RIGHT"},
        name="right",
    ),
    Case(
        "BitCast",
        26,
        [np.array([-1, -8, 7], ml_dtypes.int4)],
        np.array([15, 8, 7], ml_dtypes.uint4),
        {"to": 21},
        name="int4",
    ),
]
