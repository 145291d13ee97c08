"""Runs of operators on tokens and words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from draw import RNG, below, real
from rows import Row


def rows() -> Iterator[Row]:
    for kind in (np.int32, np.int64, np.uint32, np.float32, np.float64):
        for positive in (0, 1):
            x = (real(2, 5) * 1e4).astype(np.int64).astype(kind)
            given = {"seed": 7, "positive": positive}
            yield Row("MurmurHash3", [x], given, name=f"{kind.__name__}-{positive}")
    for i in range(8):
        heads = below(50, 4) + 3
        optional = [
            below(6, 2, 2) if i & 1 else None,
            below(9, 4) if i & 2 else None,
            np.array(3) if i & 4 else None,
            below(2, 2, 5, dtype=np.int32) if i >= 4 else None,
        ]
        given = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 2, "reset_on_eos": i % 3 % 2}
        inputs = [below(6, 2, 5), below(50, 3) * 2 + 1, heads, *optional]
        yield Row("NGramHashMapping", inputs, given, outputs=(0, 1), name=str(i))
    for shape in ((3, 5), (5, 3), (1, 4, 4), (1, 1), (4, 1)):
        for ties in (False, True):
            x = below(4, *shape).astype(np.float32) if ties else real(*shape)
            yield Row("DynamicTimeWarping", [x], name=f"{shape}-{'ties' if ties else 'real'}")
    for i in range(12):
        source, start = below(5, 8), i % 6
        predicted = np.concatenate([source[start:], below(5, 1)])
        if i % 3:
            predicted[RNG.integers(0, len(predicted))] = 4
        inputs = [source, below(5, 3), np.array(start), predicted if i % 4 else None]
        given = {"min_ngram_size": 1 + i % 2, "max_ngram_size": 3}
        yield Row("BifurcationDetector", inputs, given, outputs=(0, 1), name=str(i))
    words = below(8, 5, 6, dtype=np.int32) + 1
    words[0, 4:], words[1, 3:] = 0, 0
    sizes = {"char_embedding_size": 5, "conv_window_size": 3, "embedding_size": 4}
    inputs = [words, real(4, 1, 3, 5), real(4), real(9, 5)]
    yield Row("WordConvEmbedding", inputs, sizes, name="sizes")
    yield Row("WordConvEmbedding", inputs)


ROWS = list(rows())
