"""Reductions, and places of extremes."""

from __future__ import annotations

import numpy as np
from arrays import f32, i64, ids
from trial import one

BYTES = ids(-9, 9, 70, 99).astype(np.int8)
WORDS = ids(1, 9, 7, 3, 9).astype(np.int32)
DOUBLES = f32(300, 300).astype(np.float64)

ROWS = [
    one("ReduceSum", "ReduceSum", [f32(30, 40, 50), i64(1)], constants=(1,)),
    one("ReduceMax", "ReduceMax", [f32(30, 40, 50), i64(-1)]),
    one("ReduceMean apart", "ReduceMean", [f32(30, 40, 50), i64(0, 2)], constants=(1,)),
    one("ReduceL1 rows", "ReduceL1", [f32(3, 1700), i64(1)], constants=(1,)),
    one("ReduceMax bytes", "ReduceMax", [BYTES, i64(0)], constants=(1,)),
    one("ReduceSum int32", "ReduceSum", [WORDS, i64(1)], constants=(1,)),
    one("ReduceL2 int32", "ReduceL2", [WORDS, i64(0, 2)], constants=(1,)),
    one("ReduceProd", "ReduceProd", [DOUBLES, i64(0)], constants=(1,)),
    one("ArgMax", "ArgMax", [f32(30, 40, 53)], axis=-1),
    one("ArgMax columns", "ArgMax", [f32(30, 40, 53)], axis=1, keepdims=0),
    one("ArgMin bytes", "ArgMin", [BYTES], axis=0, select_last_index=1),
    one("ArgMin rows", "ArgMin", [BYTES], axis=1, select_last_index=1),
]
