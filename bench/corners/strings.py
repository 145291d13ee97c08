"""Columns of words and of categories, in the nodes that skl2onnx writes for scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from bench.builder import FLOAT, INT64, MICROSOFT, Builder, Specs
from bench.cpu.table import Row
from bench.models import Built

ML = "ai.onnx.ml"
STRING = TensorProto.STRING


def hashing(rows: int = 1000, columns: int = 2, buckets: int = 64) -> Built:
    """FeatureHasher: signs of hashes, summed by bucket."""
    b = Builder()
    one, zero, last = (b.ints(number) for number in (1, 0, -1))
    count = b.ints(buckets)
    hashed = b("Cast", b("MurmurHash3", "words", domain=MICROSOFT, positive=0), to=INT64)
    lowest = b("Equal", hashed, b.ints(-(1 << 31)))
    places = b("Mod", b("Where", lowest, b.ints((1 << 31) - buckets), b("Abs", hashed)), count)
    signs = b("Where", b("GreaterOrEqual", hashed, zero), one, last)
    flat = [b("Reshape", x, b.ints(-1, 1)) for x in (signs, places)]
    row = b("ConstantOfShape", count, value=TensorProto(data_type=INT64, dims=[1], int64_data=[0]))
    empty = b("Mul", flat[1], row)
    found = b("ScatterElements", empty, flat[1], flat[0], axis=1)
    shape = b("Concat", b("Slice", b("Shape", "words"), zero, last), last, count, axis=0)
    single = b("Cast", b("Reshape", found, shape), to=FLOAT)
    b("ReduceSum", single, b.ints(-2), out="sums", keepdims=0)
    proto = b.model({"words": (STRING, ["rows", columns])}, {"sums": (FLOAT, ["rows", buckets])})
    return proto, {"words": _words(rows * columns, 5000).reshape(rows, columns)}


def ordinal(rows: int = 1000, columns: int = 4, known: int = 50) -> Built:
    """OrdinalEncoder: each column's words to their places in a list."""
    b = Builder()
    keys = [f"word{number}" for number in range(known)]
    found = []
    for column in range(columns):
        chosen = b("ArrayFeatureExtractor", "words", b.ints(column), domain=ML)
        place = b(
            "LabelEncoder", chosen, domain=ML, keys_strings=keys, values_int64s=list(range(known))
        )
        found.append(b("Reshape", place, b.ints(-1, 1)))
    b("Cast", b("Concat", *found, axis=1), out="places", to=FLOAT)
    proto = b.model(
        {"words": (STRING, ["rows", columns])}, {"places": (FLOAT, ["rows", columns])}, ml=2
    )
    return proto, {"words": _words(rows * columns, known).reshape(rows, columns)}


def hot(rows: int = 1000, columns: int = 4, known: int = 50) -> Built:
    """OneHotEncoder: each column's words to rows of zeros and a one."""
    b = Builder()
    words = [f"word{number}" for number in range(known)]
    found = []
    for column in range(columns):
        chosen = b("ArrayFeatureExtractor", "words", b.ints(column), domain=ML)
        found.append(b("OneHotEncoder", chosen, domain=ML, cats_strings=words, zeros=1))
    b("Reshape", b("Concat", *found, axis=2), b.ints(-1, columns * known), out="hot")
    proto = b.model(
        {"words": (STRING, ["rows", columns])}, {"hot": (FLOAT, ["rows", columns * known])}, ml=1
    )
    return proto, {"words": _words(rows * columns, known).reshape(rows, columns)}


def tfidf(rows: int = 100, length: int = 20, known: int = 150, pairs: int = 50) -> Built:
    """TfidfVectorizer: sentences to weights of their words and pairs of words."""
    b = Builder()
    words = b(
        "StringNormalizer", b("Reshape", "text", b.ints(-1)), case_change_action="LOWER",
        is_case_sensitive=0, locale="C",
    )  # fmt: skip
    tokens = b(
        "Tokenizer", words, domain=MICROSOFT, mark=0, mincharnum=1, pad_value="#",
        tokenexp="[a-zA-Z0-9_]+",
    )  # fmt: skip
    several = [f"word{n}" for number in range(pairs) for n in (number, number + 1)]
    counts = b(
        "TfIdfVectorizer", b("Flatten", tokens), mode="TF", min_gram_length=1, max_gram_length=2,
        max_skip_count=0, ngram_counts=[0, known], ngram_indexes=list(range(known + pairs)),
        pool_strings=[f"word{number}" for number in range(known)] + several,
    )  # fmt: skip
    weighed = b("Mul", counts, b.small(known + pairs, around=2))
    b("Normalizer", weighed, out="weights", domain=ML, norm="L2")
    proto = b.model(
        {"text": (STRING, ["rows", 1])}, {"weights": (FLOAT, ["rows", known + pairs])}, ml=1
    )
    sentences = [" ".join(line) for line in _words(rows * length, known).reshape(rows, length)]
    return proto, {"text": np.array(sentences)[:, None]}


def categories(rows: int = 1000, columns: int = 8, kinds: int = 5, classes: int = 3) -> Built:
    """CategoricalNB: logarithms of shares, looked up by column and summed."""
    b = Builder()
    axis = b.ints(1)
    given = b("Cast", "x", to=FLOAT)
    found = []
    for column in range(columns):
        chosen = b("ArrayFeatureExtractor", given, b.ints(column), domain=ML)
        place = b("Cast", chosen, to=INT64)
        looked_up = b("ArrayFeatureExtractor", b.small(classes, kinds), place, domain=ML)
        found.append(b("Transpose", looked_up, perm=[1, 0]))
    total = b("Add", b("Sum", *found), b.small(classes))
    norm = b("Reshape", b("ReduceLogSumExp", total, axis, keepdims=0), b.ints(-1, 1))
    b("Exp", b("Sub", total, norm), out="probabilities")
    best = b("ArgMax", total, axis=1)
    label = b("ArrayFeatureExtractor", b.ints(*range(classes)), best, domain=ML)
    b("Reshape", label, b.ints(-1), out="label")
    outputs: Specs = {"label": (INT64, ["rows"]), "probabilities": (FLOAT, ["rows", classes])}
    proto = b.model({"x": (INT64, ["rows", columns])}, outputs, opset=18, ml=1)
    x = np.random.default_rng(1).integers(0, kinds, (rows, columns))
    return proto, {"x": x}


def _words(count: int, of: int) -> np.ndarray[Any, Any]:
    return np.char.add("word", np.random.default_rng(1).integers(0, of, count).astype(str))


ROWS = {
    "hashing": Row("FeatureHasher, 1,000 x 2 words", hashing, lambda: hashing(10)),
    "ordinal": Row("OrdinalEncoder, 1,000 x 4 words", ordinal, lambda: ordinal(10)),
    "ordinal-1": Row("OrdinalEncoder, 1 x 4 words", lambda: ordinal(1), lambda: ordinal(1)),
    "one-hot": Row("OneHotEncoder, 1,000 x 4 words", hot, lambda: hot(10)),
    "one-hot-1": Row("OneHotEncoder, 1 x 4 words", lambda: hot(1), lambda: hot(1)),
    "tfidf": Row("TfidfVectorizer, 100 x 20 words", tfidf, lambda: tfidf(5)),
    "tfidf-1": Row("TfidfVectorizer, 1 x 20 words", lambda: tfidf(1), lambda: tfidf(1)),
    "categories": Row("CategoricalNB, 1,000 x 8", categories, lambda: categories(10)),
}
