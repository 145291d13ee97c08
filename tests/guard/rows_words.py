"""Words by address, what becomes of their hashes, and categories."""

from __future__ import annotations

import numpy as np
import onnx
from arrays import ML, MS, f32, ids
from trial import of_model, one

FLOATS = [0.25 * n for n in range(9)]

WORDS = np.array([f"word{number % 90}" for number in range(3000)], object).reshape(-1, 2)
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

KEYS = ", ".join(f'"word{number}"' for number in range(50))
TO_NUMBERS = f"keys_strings = [{KEYS}], values_int64s = [{', '.join(map(str, range(50)))}]"
COLUMNS = onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]>
    columns (string[n, m] x) => (int64[k, 2] y)
    <int64[1] first = {{0}}, int64[1] last = {{1}}, int64[2] shape = {{-1, 1}}> {{
        one = Gather <axis = 1> (x, first)
        codes = ai.onnx.ml.LabelEncoder <{TO_NUMBERS}> (one)
        other = Gather <axis = 1> (x, last)
        codes2 = ai.onnx.ml.LabelEncoder <{TO_NUMBERS}> (other)
        left = Reshape(codes, shape)
        right = Reshape(codes2, shape)
        y = Concat <axis = 1> (left, right)
    }}
""")

CATEGORIES = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    categories (float[n, m] x, float[3, 5] rows, float[3, 4] others) => (float[k, 3] y)
    <int64[1] first = {0}, int64[1] last = {1}, int64[1] flat = {-1}> {
        column = Gather <axis = 1> (x, first)
        places = Cast <to = 7> (column)
        single = Reshape(places, flat)
        found = Gather <axis = 1> (rows, single)
        one = Transpose <perm = [1, 0]> (found)
        column2 = Gather <axis = 1> (x, last)
        places2 = Cast <to = 7> (column2)
        single2 = Reshape(places2, flat)
        found2 = Gather <axis = 1> (others, single2)
        other = Transpose <perm = [1, 0]> (found2)
        y = Sum(one, other)
    }
""")
TOKENS = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    tokens (string[n] x) => (float[k, 3] y) {
        tokens = com.microsoft.Tokenizer
            <mark = 0, mincharnum = 2, pad_value = "#", tokenexp = "[a-z0-9]+"> (x)
        y = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 2,
            max_skip_count = 1, ngram_counts = [0, 2], ngram_indexes = [0, 1, 2],
            pool_strings = ["word1", "word22", "word1", "word22"]> (tokens)
    }
""")
TEXTS = np.array([" ".join(WORDS[n : n + 3 + n % 5, 0].tolist()) for n in range(900)], object)
TABLES = {"rows": f32(3, 5), "others": f32(3, 4)}

ROWS = [
    one("MurmurHash3 words", "MurmurHash3", [WORDS], domain=MS),
    one("MurmurHash3 accents", "MurmurHash3", [WORDS + "é"], domain=MS),
    one(
        "floats among keys",
        "LabelEncoder",
        [f32(30, 50)],
        domain=ML,
        opset=20,
        keys_floats=FLOATS,
        values_floats=FLOATS,
    ),
    one(
        "whole numbers among keys",
        "OneHotEncoder",
        [ids(-9, 60, 40, 30)],
        domain=ML,
        opset=20,
        cats_int64s=range(3),
    ),
    one("a path", "DynamicTimeWarping", [f32(30, 50)], domain=MS),
    of_model("columns of words", COLUMNS, {"x": WORDS}),
    of_model("tokens", TOKENS, {"x": TEXTS}),
    of_model(
        "sums of chosen rows", CATEGORIES, {"x": ids(-4, 4, 9000, 2, dtype=np.float32), **TABLES}
    ).with_constants(["rows", "others"]),
    of_model(
        "sums by bucket",
        BUCKETS,
        {"places": ids(-40, 40, 6000, 1), "numbers": ids(-1, 2, 6000, 1)},
    ),
]
