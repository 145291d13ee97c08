"""TfIdfVectorizer on a JIT kernel."""

from __future__ import annotations

import functools

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.allocation import check_bytes
from tenonnx_array.tfidf import Vectorizer
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.launch import done, fix
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import MAX_TASK_ELEMENTS, shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.ml.lookup import FIND_WHOLE, I64, Finder

TFIDF = JitKernel("ml.tfidf", "tfidf")

# Tokens and columns that are worth a second thread.
MIN_TOKENS_PER_THREAD = 1 << 14

# Tokens from which on a kernel finds their numbers sooner than numpy does.
MIN_FOUND_TOKENS = 1 << 12

MOST_SKIPPED = 1 << 32


@cacheable
class Counts:
    """Counts of n-grams of numbered tokens, on the kernel.

    Args:
        made: Counts them on numpy.
        threads: How many threads may do it.
    """

    def __init__(self, made: Vectorizer, threads: int) -> None:
        TFIDF.request()
        self.made, self._threads = made, threads
        trie = made.trie
        columns = np.where(trie.ngram < 0, -1, made.places[trie.ngram])
        scale = np.zeros(0, np.float32) if made.scale is None else made.scale
        # Any more tokens between two neighbors are more than there are.
        limits = len(trie.numbers), made.longest, min(made.skips, MOST_SKIPPED)
        self._finder = None
        if made.whole is not None:
            least, numbers = made.whole
            places = fix(np.arange(len(numbers)))
            self._finder = Finder(numbers, FIND_WHOLE, (least, places), I64)
        self._given = (trie.edges, trie.first, columns, *limits, made.is_binary, scale)

    def takes(self, rows: int, length: int) -> bool:
        """Return whether the kernel can do it, for so many rows of so many tokens."""
        # numpy asks between two strides whether to stop.
        has_any = rows > 0 and length > 0
        return TFIDF.run is not None and has_any and self._work(length) <= MAX_TASK_ELEMENTS

    def _work(self, length: int) -> int:
        return min(self.made.skips + 1, length) * self.made.longest * length

    def numbers(self, x: NDArray) -> NDArray:
        """Return the number of each token in rows, [N, C], as ``made`` does."""
        found = None
        if self._finder and x.size >= MIN_FOUND_TOKENS:
            found = self._finder.launch(x.reshape(-1, x.shape[-1]), self._threads)
        return done(found) if found else self.made.numbers(x)  # type: ignore[no-any-return]

    def __call__(self, numbers: NDArray) -> NDArray:
        """Return [N, width] for numbers [N, C], which it takes."""
        check_bytes(4 * len(numbers) * self.made.width, "the array of counts")
        y = empty((len(numbers), self.made.width))
        work = len(numbers) * self._work(numbers.shape[1]) + y.size
        grain, threads = shared_out(len(numbers), work, MIN_TOKENS_PER_THREAD, self._threads)
        assert TFIDF.run is not None
        TFIDF.run(numbers, *self._given, y, grain, threads)
        return y


@specialize("TfIdfVectorizer")
def specialize_tfidf(site: Site, plain: Call) -> Call | None:
    """Count what tokens that are looked up one by one make."""
    if not isinstance(plain, Vectorizer):
        return None
    return functools.partial(_counted, Counts(plain, site.threads))


@cacheable
def _counted(counts: Counts, x: NDArray) -> NDArray:
    rows, length = (1, *x.shape)[-2:] if x.ndim in (1, 2) else (0, 0)
    if not counts.takes(rows, length):
        return counts.made(x)  # type: ignore[no-any-return]  # an array kernel's result
    y = counts(counts.numbers(x))
    return y[0] if x.ndim == 1 else y
