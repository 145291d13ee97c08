"""Reading and writing by index at versions, and in corners, that the backend suite leaves out."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from case import Case

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
V = np.array([10, 20, 30], np.float32)
M = np.array([[1, 2], [3, 4]], np.float32)
WORDS = np.array([["b", "a"], ["a", "a"], ["b", "a"]], object)
ZEROS = np.zeros((3, 3), np.float32)
INDICES = np.array([[1, 0, 2], [0, 2, -2]])
UPDATES = np.array([[1.0, 1.1, 1.2], [2.0, 2.1, 2.2]], np.float32)
SCATTERED = np.array([[2.0, 1.1, 0.0], [1.0, 0.0, 2.2], [0.0, 2.1, 1.2]], np.float32)
ROWS = np.array([[1], [-1], [1]])
ROW_UPDATES = np.array([[5, 6], [7, 8], [2, 3]], np.float32)
BF16 = ml_dtypes.bfloat16

REDUCTIONS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
}


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def scattered_rows(reduction: str) -> np.ndarray:
    out = M.copy()
    for (row,), updates in zip(ROWS, ROW_UPDATES, strict=True):
        for j, update in enumerate(updates):
            out[row, j] = REDUCTIONS[reduction](out[row, j], update)
    return out


def one_hot(indices: np.ndarray, depth: int) -> np.ndarray:
    out = np.full((*indices.shape, depth), -1.0, np.float32)
    for place, i in np.ndenumerate(indices):
        if -depth <= i < depth:
            out[(*place, int(i))] = 3.0
    return out


def reversed_sequences(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    out = x.copy()
    for b, n in enumerate(lengths):
        out[:n, b] = x[:n, b][::-1]
    return out


UNALIGNED = np.frombuffer(b"\0" + X.tobytes(), np.float32, offset=1).reshape(6, 4)
CLASSES = np.array([[0, 2], [-1, 3], [-4, 1]])
VALUES = np.array([-1, 3], np.float32)

CASES = [
    Case("Gather", 11, [X, np.array([[0, -1]])], X[:, :, [[0, 3]]], {"axis": -1}),
    Case("Gather", 13, [X, np.array(-1)], X[:, 2], {"axis": 1}, name="one-index"),
    Case("Gather", 13, [WORDS[0], np.array(1)], np.array("a", object), name="one-string"),
    Case("Gather", 13, [V, np.zeros((0, 2), np.int32)], np.zeros((0, 2), np.float32), name="none"),
    Case("Gather", 13, [X.T, ints(3, 0)], np.stack([X[..., 3].T, X[..., 0].T]), name="strided"),
    Case("Gather", 13, [UNALIGNED, ints(5, -6)], X.reshape(6, 4)[[5, 0]], name="unaligned"),
    Case(
        "GatherElements",
        11,
        [M, np.array([[0, 0], [1, 0]])],
        np.array([[1, 1], [4, 3]], "f"),
        {"axis": 1},
    ),
    Case("GatherElements", 13, [X, np.array([[[-1]]])], X[1:, :1, :1], name="covers-less"),
    Case("GatherND", 11, [X, np.array([[0, 1], [-1, 0]])], np.stack([X[0, 1], X[1, 0]])),
    Case(
        "GatherND",
        12,
        [X, np.array([[[2, 1]], [[0, -1]]])],
        np.array([[X[0, 2, 1]], [X[1, 0, 3]]]),
        {"batch_dims": 1},
    ),
    Case("GatherND", 13, [WORDS, ints(0, 0)], np.array("b", object), name="one-string"),
    *[
        Case(op, v, [ZEROS, INDICES, UPDATES], SCATTERED)
        for op, v in [("Scatter", 11), *[("ScatterElements", v) for v in (11, 13, 16)]]
    ],
    Case(
        "Scatter", 9, [V[None], np.array([[1, -1]]), V[None, :2]], V[None, [0, 0, 1]], {"axis": 1}
    ),
    *[
        Case(
            "ScatterElements",
            v,
            [M, np.array([[0, 1], [0, 0]]), np.array([[5, 6], [2, 1]], np.float32)],
            np.array(expected, np.float32),
            {"axis": 0, "reduction": reduction},
            name=reduction,
        )
        for v, reduction, expected in [
            (16, "add", [[8, 3], [3, 10]]),
            (16, "mul", [[10, 2], [3, 24]]),
            (18, "max", [[5, 2], [3, 6]]),
            (18, "min", [[1, 1], [3, 4]]),
        ]
    ],
    Case(
        "ScatterElements",
        18,
        [np.array([250], np.uint8), ints(0, 0), np.array([4, 4], np.uint8)],
        np.array([2], np.uint8),
        {"reduction": "add"},
        name="wraps",
    ),
    Case("ScatterND", 11, [M, ROWS[:1], ROW_UPDATES[:1]], np.array([[1, 2], [5, 6]], np.float32)),
    Case(
        "ScatterND",
        13,
        [WORDS, np.array([[0, 1], [-1, 0]]), np.array(["x", "y"], object)],
        np.array([["b", "x"], ["a", "a"], ["y", "a"]], object),
    ),
    *[
        Case("ScatterND", v, [M, ROWS, ROW_UPDATES], scattered_rows(r), {"reduction": r}, name=r)
        for v, r in [(16, "add"), (16, "mul"), (18, "max"), (18, "min")]
    ],
    Case("ScatterND", 16, [M, np.zeros((0, 1), np.int64), M[:0]], M, name="none"),
    Case(
        "TensorScatter",
        24,
        [np.zeros((2, 4, 1), np.int8), np.array([[[1], [2]], [[3], [4]]], np.int8), ints(3, 1)],
        np.array([[2, 0, 0, 1], [0, 3, 4, 0]], np.int8)[..., None],
        {"mode": "circular"},
        name="int8-wraps",
    ),
    Case(
        "TensorScatter",
        24,
        [np.zeros((1, 2, 3), np.float32), np.ones((1, 2, 1), np.float32)],
        np.array([[[1, 0, 0], [1, 0, 0]]], np.float32),
        {"axis": 2},
        name="prefill",
    ),
    Case("NonZero", 9, [np.array([[0, 2], [np.nan, 0]])], np.array([[0, 1], [1, 0]])),
    Case("NonZero", 13, [np.array(True)], np.zeros((0, 1), np.int64), name="scalar"),
    Case("NonZero", 13, [np.array(0.0)], np.zeros((0, 0), np.int64), name="scalar-zero"),
    *[
        Case("OneHot", v, [CLASSES.astype(dtype), depth, VALUES], one_hot(CLASSES, 3))
        for v, dtype, depth in [
            (9, np.int32, np.array(3)),
            (11, np.float32, np.array([3], np.float32)),
        ]
    ],
    Case(
        "OneHot",
        11,
        [np.array([0, 255], np.uint8), np.array(2), np.array(["n", "y"], object)],
        np.array([["y", "n"], ["n", "n"]], object),
        name="unsigned",
    ),
    Case(
        "OneHot",
        11,
        [CLASSES, np.array(3), VALUES],
        np.moveaxis(one_hot(CLASSES, 3), -1, 0),
        {"axis": -3},
        name="axis",
    ),
    Case(
        "Unique",
        11,
        [WORDS],
        (WORDS[[1, 0]], ints(1, 0), ints(1, 0, 1), ints(1, 2)),
        {"axis": 0},
        name="strings",
    ),
    Case(
        "Unique",
        28,
        [np.array([[2, 1], [3, 2]], BF16)],
        (np.array([2, 1, 3], BF16), ints(0, 1, 2), ints(0, 1, 2, 0), ints(2, 1, 1)),
        {"sorted": 0},
        name="first-come",
    ),
    Case(
        "Unique",
        28,
        [np.array([[2, 1, 2]], BF16)],
        (np.array([[1, 2]], BF16), ints(1, 0), ints(1, 0, 1), ints(1, 2)),
        {"axis": -1},
        name="bfloat16-axis",
    ),
    Case("Unique", 28, [np.zeros((0, 2))], (np.zeros(0), ints(), ints(), ints()), name="empty"),
    Case(
        "Unique", 28, [np.zeros((0, 2))], (np.zeros((0, 2)), ints()), {"axis": 0}, name="empty-axis"
    ),
    *[
        Case("Compress", v, [M, np.array([False, True])], M[:, 1:], {"axis": 1 if v == 9 else -1})
        for v in (9, 11)
    ],
    Case(
        "Compress",
        11,
        [M, np.array([True, False, True])],
        np.array([1, 3], np.float32),
        name="flat",
    ),
    Case("ReverseSequence", 10, [X[0], ints(3, 0, 2, 1)], reversed_sequences(X[0], [3, 0, 2, 1])),
    Case(
        "ReverseSequence",
        28,
        [X, ints(2, 3)],
        reversed_sequences(X.swapaxes(0, 1), [2, 3]).swapaxes(0, 1),
        {"batch_axis": 0, "time_axis": 1},
        name="batch-first",
    ),
]
