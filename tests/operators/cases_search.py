"""ArgMax, ArgMin and TopK at versions, and with ties, that the backend suite leaves out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from case import Case
from formula import RNG, X

TIES = np.float32([[2, 1, 2], [0, 0, 0]])
INTS = np.int8([-128, 127, -128, 0])
MANY = RNG.integers(0, 50, (4, 1000)).astype(np.float32)
DISTINCT = RNG.permuted(np.arange(3000, dtype=np.float64).reshape(3, 1000), axis=1)


def first(x: np.ndarray, k: int, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """Python's own stable sort, row by row."""
    rows = [sorted(range(len(row)), key=lambda i, r=row: sign * r[i])[:k] for row in x.tolist()]
    indices = np.array(rows)
    return np.take_along_axis(x, indices, -1), indices


CASES = [
    *(
        Case(op, version, [X], np.expand_dims(f(X, a), a), {"axis": a})
        for op, f in [("ArgMax", np.argmax), ("ArgMin", np.argmin)]
        for version, a in [(1, 2), (11, -1), (12, 0)]
    ),
    Case(
        "ArgMax",
        12,
        [TIES],
        np.array([2, 2]),
        {"axis": 1, "keepdims": 0, "select_last_index": 1},
        name="last",
    ),
    Case(
        "ArgMin",
        12,
        [TIES],
        np.array([1, 2]),
        {"axis": 1, "keepdims": 0, "select_last_index": 1},
        name="last",
    ),
    Case("ArgMax", 1, [TIES], np.array([0, 0]), {"axis": 1, "keepdims": 0}, name="first"),
    Case("TopK", 1, [TIES], (np.float32([[2, 2], [0, 0]]), np.array([[0, 2], [0, 1]])), {"k": 2}),
    Case("TopK", 10, [TIES, np.array([1])], (TIES[:1], np.zeros((1, 3), np.int64)), {"axis": 0}),
    Case(
        "TopK",
        11,
        [INTS, np.array([3])],
        (np.int8([127, 0, -128]), np.array([1, 3, 0])),
        name="int8",
    ),
    Case(
        "TopK",
        11,
        [INTS, np.array([3])],
        (np.int8([-128, -128, 0]), np.array([0, 2, 3])),
        {"largest": 0},
        name="least",
    ),
    Case(
        "TopK",
        11,
        [np.uint64([0, 2**64 - 1, 5]), np.array([2])],
        (np.uint64([2**64 - 1, 5]), np.array([1, 2])),
        name="uint64",
    ),
    Case(
        "TopK",
        24,
        [TIES.astype(ml_dtypes.bfloat16), np.array([1])],
        (np.array([[2], [0]], ml_dtypes.bfloat16), np.array([[0], [0]])),
    ),
    Case("TopK", 11, [TIES, np.array([0])], (TIES[:, :0], np.zeros((2, 0), np.int64)), name="none"),
    *(
        Case(
            "TopK",
            11,
            [x, np.array([k])],
            lambda x, k, s=sign: first(x, int(k[0]), s),
            {"largest": int(sign < 0)},
            name=name,
        )
        for sign in (-1, 1)
        for x, k, name in [(MANY, 7, f"many-ties-{sign}"), (DISTINCT, 9, f"partition-{sign}")]
    ),
]
