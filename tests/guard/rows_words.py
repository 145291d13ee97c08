"""Words by address, and what becomes of their hashes."""

from __future__ import annotations

import numpy as np
import onnx
from arrays import ML, MS, i64, ids
from trial import chain, of_model, one

WORDS = np.array([f"word{number % 90}" for number in range(3000)], object).reshape(-1, 2)
CODES = {"keys_strings": [f"word{n}" for n in range(50)], "values_int64s": [*range(50)]}

BUCKETS = onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["": 21]>
    sums (int64[n, 1] places, int64[m, 1] numbers) => (float[k, 40] y)
    <int64[40] zeros = {{{", ".join(["0"] * 40)}}}, int64[3] shape = {{3000, -1, 40}},
     int64[1] axes = {{-2}}> {{
        empty = Mul(places, zeros)
        found = ScatterElements <axis = 1> (empty, places, numbers)
        rows = Reshape(found, shape)
        single = Cast <to = 1> (rows)
        y = ReduceSum <keepdims = 0> (single, axes)
    }}
""")

ROWS = [
    one("MurmurHash3 words", "MurmurHash3", [WORDS], domain=MS),
    chain(
        "columns of words",
        [
            ("Gather", [WORDS, i64(1)], {"axis": 1}),
            ("LabelEncoder", [...], CODES, ML),
            ("Reshape", [..., i64(-1, 1)], {}),
            ("Concat", [...], {"axis": 1}),
        ],
    ),
    of_model(
        "sums by bucket",
        BUCKETS,
        {"places": ids(-40, 40, 6000, 1), "numbers": ids(-1, 2, 6000, 1)},
    ),
]
