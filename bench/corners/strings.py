"""Columns of words, as pipelines of scikit-learn have them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from bench.builder import FLOAT, INT64, MICROSOFT, Builder
from bench.cpu.table import Row
from bench.models import Built

STRING = TensorProto.STRING


def hashing(rows: int = 1000) -> Built:
    """Words to one of 1024 buckets."""
    b = Builder()
    hashed = b("MurmurHash3", "words", domain=MICROSOFT, positive=0)
    b("Mod", b("Cast", hashed, to=INT64), b.ints(1024), out="buckets")
    proto = b.model({"words": (STRING, ["rows"])}, {"buckets": (INT64, ["rows"])})
    return proto, {"words": _words(rows, 5000)}


def ordinal(rows: int = 1000, columns: int = 4) -> Built:
    """Each column's words to their places in a list of 50."""
    b = Builder()
    keys = [f"word{number}" for number in range(50)]
    found = []
    for column in range(columns):
        chosen = b("Gather", "words", b.ints(column), axis=1)
        found.append(
            b("LabelEncoder", chosen, domain="ai.onnx.ml", keys_strings=keys,
              values_int64s=list(range(50)))
        )  # fmt: skip
    b("Concat", *found, axis=1, out="places")
    proto = b.model(
        {"words": (STRING, ["rows", columns])}, {"places": (INT64, ["rows", columns])}, ml=2
    )
    return proto, {"words": _words(rows * columns, 60).reshape(rows, columns)}


def tfidf(rows: int = 100, length: int = 20) -> Built:
    """Counts of 200 words and pairs of words in every row of words, weighed."""
    b = Builder()
    vocabulary = [f"word{number}" for number in range(150)]
    pairs = [f"word{n}" for number in range(50) for n in (number, number + 1)]
    b(
        "TfIdfVectorizer", "words", out="weights", mode="TFIDF",
        min_gram_length=1, max_gram_length=2, max_skip_count=0, ngram_counts=[0, 150],
        ngram_indexes=list(range(200)), pool_strings=vocabulary + pairs,
        weights=b.random.uniform(1, 5, 200).tolist(),
    )  # fmt: skip
    proto = b.model({"words": (STRING, ["rows", length])}, {"weights": (FLOAT, ["rows", 200])})
    return proto, {"words": _words(rows * length, 200).reshape(rows, length)}


def _words(count: int, of: int) -> np.ndarray[Any, Any]:
    return np.char.add("word", np.random.default_rng(1).integers(0, of, count).astype(str))


ROWS = {
    "hashing": Row("MurmurHash3 of 1,000 words", hashing, lambda: hashing(10)),
    "ordinal": Row("OrdinalEncoder, 1,000 x 4 words", ordinal, lambda: ordinal(10)),
    "tfidf": Row("TfIdfVectorizer, 100 x 20 words", tfidf, lambda: tfidf(5)),
}
