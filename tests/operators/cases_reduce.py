"""Reductions, softmax and running sums at versions that the backend suite leaves out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from case import Case
from formula import POSITIVE, X, in64

FORMULAS = {
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
}
EMPTY = np.zeros((2, 0, 3), np.float32)
INTS = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
BF16 = POSITIVE.astype(ml_dtypes.bfloat16)


def old(op: str, version: int) -> list[Case]:
    """Axes as an attribute: one, several, negative, none; dimensions kept and pruned."""
    cases = []
    for axes, keepdims in [((1,), 1), ((0, 2), 0), ((-1, 1), 0), (None, 1), (None, 0)]:
        attributes = {"keepdims": keepdims} | ({} if axes is None else {"axes": axes})
        formula = in64(lambda x, a=axes, k=keepdims: FORMULAS[op](x, axis=a, keepdims=bool(k)))
        name = f"{axes}-{keepdims}"
        cases.append(Case(op, version, [POSITIVE], formula, attributes, name=name))
    return cases


def new(op: str, version: int) -> list[Case]:
    """Axes as an input, absent or empty: all of them, or none."""
    f = FORMULAS[op]
    empty = np.zeros(0, np.int64)
    noop = {"noop_with_empty_axes": 1}
    every = in64(lambda x, *_: f(x, axis=None, keepdims=True))
    none = in64(lambda x, *_: f(x, axis=(), keepdims=True))
    pruned = in64(lambda x, _: f(x, axis=(1, 3), keepdims=False))
    some = np.array([1, -1])
    return [
        Case(op, version, [POSITIVE], every, name="all"),
        Case(op, version, [POSITIVE, empty], every, name="all-empty"),
        Case(op, version, [POSITIVE], none, noop, name="noop"),
        Case(op, version, [POSITIVE, empty], none, noop, name="noop-empty"),
        Case(op, version, [POSITIVE, some], pruned, {"keepdims": 0}, name="pruned"),
        Case(op, version, [POSITIVE[0, 0, 0, 0]], every, name="scalar"),
        Case(op, version, [BF16, some], pruned, {"keepdims": 0}, name="bf16", rtol=2**-8, atol=0.0),
    ]


def of_empty(op: str, value: float, dtype: type = np.float32) -> Case:
    axis = np.array([1])
    x = EMPTY.astype(dtype)
    return Case(op, 20, [x, axis], np.full((2, 1, 3), value, dtype), name=f"empty-{x.dtype}")


def integers(op: str, value: int) -> Case:
    answer = np.array(value, np.int32)
    return Case(op, 13, [INTS[0]], answer, {"keepdims": 0, "axes": (0,)}, name="int")


def softmax(x: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    return np.exp(x) / np.sum(np.exp(x), axis=axis, keepdims=True)


LARGE = X * np.float32(1000)
HARD = np.float32([[[1, 3], [3, 2]], [[0, -1], [-1, 0]]])

CASES = [
    *(case for op in FORMULAS for case in old(op, 1)),
    *(old(op, v)[0] for op in FORMULAS for v in (11, 13) if (op, v) != ("ReduceSum", 13)),
    *(old(op, 12)[0] for op in ("ReduceMax", "ReduceMin")),
    *(case for op in FORMULAS for case in new(op, 28)),
    *(new(op, 18)[0] for op in ("ReduceLogSum", "ReduceLogSumExp")),
    of_empty("ReduceSum", 0),
    of_empty("ReduceProd", 1),
    of_empty("ReduceMax", -np.inf),
    of_empty("ReduceMin", np.inf),
    of_empty("ReduceMax", -128, np.int8),
    of_empty("ReduceMin", 127, np.int8),
    of_empty("ReduceMax", False, np.bool_),
    of_empty("ReduceMin", True, np.bool_),
    of_empty("ReduceMax", -np.inf, ml_dtypes.bfloat16),
    of_empty("ReduceL1", 0),
    of_empty("ReduceL2", 0),
    of_empty("ReduceLogSum", -np.inf),
    of_empty("ReduceLogSumExp", -np.inf),
    integers("ReduceProd", 24),
    integers("ReduceMean", 2),
    integers("ReduceL2", 5),
    *(
        Case("ReduceL2", 13, [np.full(4, most, dtype)], np.full(1, most, dtype), name=dtype)
        for dtype in ("int32", "uint32")
        for most in [np.iinfo(dtype).max]
    ),
    *(
        Case("ReduceL2", 13, [np.full(4, most, dtype)], np.full(1, most - lost, dtype), name=dtype)
        for dtype, lost in (("int64", 1023), ("uint64", 2047))
        for most in [np.iinfo(dtype).max]
    ),
    integers("ReduceSumSquare", 30),
    integers("ReduceLogSum", 2),
    integers("ReduceLogSumExp", 4),
    Case("ReduceMean", 18, [np.int32([-3, 0])], np.int32([-1]), name="truncates"),
    Case("ReduceMean", 13, [np.zeros((0, 2), np.int32)], np.int32([[0, 0]]), {"axes": (0,)}),
    Case("ReduceSum", 13, [np.int32([2**31 - 1, 1])], np.int32([-(2**31)]), name="wraps"),
    Case(
        "ReduceSum",
        13,
        [np.full(4096, 1, ml_dtypes.bfloat16)],
        np.array([4096], ml_dtypes.bfloat16),
    ),
    Case(
        "ReduceLogSumExp",
        18,
        [np.float32([1000, 1000])],
        np.float32([1000 + np.log(2)]),
        name="large",
    ),
    Case("ReduceLogSumExp", 18, [np.float32([np.inf, 1])], np.float32([np.inf]), name="infinite"),
    *(
        Case(op, version, [X], in64(lambda x, f=f, a=a: f(softmax(x, a))), attributes)
        for op, f in [("Softmax", lambda y: y), ("LogSoftmax", np.log)]
        for version, attributes, a in [(1, {}, (1, 2, 3)), (11, {"axis": -2}, (2, 3))]
    ),
    Case(
        "Softmax", 13, [LARGE], in64(lambda x: softmax(x - x.max(1, keepdims=True), 1)), {"axis": 1}
    ),
    Case("Softmax", 13, [EMPTY], EMPTY, {"axis": 1}, name="empty"),
    Case("LogSoftmax", 13, [EMPTY], EMPTY, {"axis": 1}, name="empty"),
    Case("Hardmax", 13, [EMPTY], EMPTY, {"axis": 1}, name="empty"),
    Case("Hardmax", 1, [HARD], np.float32([[[0, 1], [0, 0]], [[1, 0], [0, 0]]])),
    Case("Hardmax", 11, [HARD], np.float32([[[0, 1], [1, 0]], [[1, 0], [0, 1]]]), {"axis": -1}),
    Case("Hardmax", 13, [HARD], np.float32([[[0, 1], [1, 0]], [[1, 0], [0, 1]]]), {"axis": 2}),
    Case(
        "Hardmax",
        13,
        [HARD],
        np.float32([[[0, 1], [1, 0]], [[1, 0], [0, 1]]]),
        {"axis": -2},
        name="-2",
    ),
    Case(
        "LpNormalization",
        1,
        [X],
        in64(lambda x: x / np.abs(x).sum(1, keepdims=True)),
        {"axis": 1, "p": 1},
    ),
    Case(
        "LpNormalization",
        1,
        [np.float32([[0, 0], [3, 4]])],
        np.float32([[0, 0], [0.6, 0.8]]),
        name="zero",
    ),
    Case(
        "MeanVarianceNormalization",
        9,
        [X],
        in64(lambda x: (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)),
    ),
    Case("CumSum", 11, [INTS, np.int32(1)], np.cumsum(INTS, 1, np.int32)),
    Case(
        "CumSum", 11, [INTS, np.int64([-2])], np.cumsum(INTS, 0, np.int32) - INTS, {"exclusive": 1}
    ),
    Case(
        "CumSum",
        14,
        [np.ones(300, np.float16) * np.float16(0.1), np.int32(0)],
        in64(lambda x, _: np.cumsum(x)),
        name="half",
        rtol=2**-10,
    ),
    Case(
        "CumProd",
        26,
        [INTS[:2].astype(np.int64), np.int32(1)],
        np.int64([[24, 12, 4, 1], [336, 56, 8, 1]]),
        {"exclusive": 1, "reverse": 1},
    ),
]
