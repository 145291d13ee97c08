"""TfIdfVectorizer on a JIT kernel."""

from __future__ import annotations

import numpy as np

from tenonnx_array.tfidf import Vectorizer
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.threading_config import LONGEST, shared_out

TFIDF = JitKernel("ml.tfidf", "tfidf")

ENOUGH = 1 << 14
"""Tokens and columns that are worth a second thread."""


@specialize("TfIdfVectorizer")
def specialize_tfidf(site: Site, plain: Call) -> Call | None:
    """Counts what tokens that are looked up one by one make."""
    if not isinstance(plain, Vectorizer):
        return None
    made, trie = plain, plain.trie
    TFIDF.request()
    columns = np.where(trie.ngram < 0, -1, made.places[trie.ngram])
    limits = len(trie.numbers), made.longest, made.skips
    scale = np.zeros(0, np.float32) if made.scale is None else made.scale

    def call(x: NDArray) -> NDArray:
        run = TFIDF.run
        strides = min(made.skips + 1, x.shape[-1]) if x.ndim else 0
        work = x.size * strides * made.longest
        # numpy asks between two strides whether to stop.
        if run is None or not x.size or work // x.size * x.shape[-1] > LONGEST:
            return made(x)  # type: ignore[no-any-return]  # an array kernel's result
        numbers = made.numbers(x)
        rows = len(numbers)
        y = empty((rows, made.width))
        work += y.size
        grain, threads = shared_out(rows, work, ENOUGH, site.threads)
        lists = trie.edges, trie.first, columns
        run(numbers, *lists, *limits, made.is_binary, scale, y, grain, threads)
        return y[0] if x.ndim == 1 else y

    return call
