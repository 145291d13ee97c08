"""TfIdfVectorizer: counts of n-grams with skips, as a walk down a trie of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx.process import interruption
from tenonnx_array.allocation import check_allocation
from tenonnx_array.ml.staged import StagedTable

table = StagedTable()
op = table.op


# Numbers of a table of tokens, which has 8 bytes for each: as many as wide vocabularies have.
MOST_WHOLE = 1 << 18


@cacheable
class Trie(NamedTuple):
    """The pool's n-grams. A state is a prefix; state 0 is the empty one.

    Attributes:
        numbers: Distinct tokens and their numbers.
        edges: Sorted ``state * len(numbers) + number``; the i-th edge leads to state i + 1.
        first: The state that each token's number leads to from the empty one, and a last 0.
        ngram: For each state the n-gram that ends there, or -1.
    """

    numbers: dict[Any, int]
    edges: Array
    first: Array
    ngram: Array


@op("TfIdfVectorizer", since=9, host="all")
def tfidf_vectorizer(
    _xp: Namespace,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Vectorizer:
    """Count the pool's n-grams in each row of ``x``, as float32.

    ``x`` has shape [C] or [N, C]. Neighbors in an n-gram are equally far apart, with 0 to
    ``max_skip_count`` tokens between them. TF counts, IDF says 1 or 0 and TFIDF counts; the
    latter two scale by ``weights``.
    """
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"expected mode TF, IDF or TFIDF, found {mode}")
    if not 0 < min_gram_length <= max_gram_length <= len(ngram_counts):
        raise ValueError(
            f"expected 0 < min_gram_length <= max_gram_length <= {len(ngram_counts)}, as many as "
            f"ngram_counts are, found {min_gram_length} and {max_gram_length}"
        )
    if max_skip_count < 0:
        raise ValueError(f"expected max_skip_count of 0 or more, found {max_skip_count}")
    pool = pool_strings if pool_int64s is None else pool_int64s
    if pool is None:
        raise ValueError("expected pool_int64s or pool_strings, found neither")
    places = np.array(ngram_indexes, np.int64)
    if not places.size or places.min() < 0:
        raise ValueError(f"expected ngram_indexes of 0 or more, found {places.tolist()[:5]}")
    scale = None
    if mode != "TF" and weights is not None:
        scale = np.ones(int(places.max()) + 1, np.float32)
        scale[places] = weights
    trie = _trie(pool, ngram_counts, min_gram_length, max_gram_length)
    if trie.ngram.max() >= len(places):
        raise ValueError(
            f"expected as many ngram_indexes as n-grams, found {len(places)} and at least "
            f"{trie.ngram.max() + 1}"
        )
    return Vectorizer(trie, places, max_gram_length, max_skip_count, mode == "IDF", scale)


@cacheable
class Vectorizer:
    """Counts of n-grams.

    Args:
        trie: The n-grams.
        places: The column of each.
        longest: The most tokens of one.
        skips: The most tokens between two neighbors.
        is_binary: Whether counts are 1 at most.
        scale: The columns' weights, if there are any.
    """

    def __init__(
        self, trie: Trie, places: Array, longest: int, skips: int, is_binary: bool, scale: Array
    ) -> None:
        self.trie = trie
        self.places = places
        self.longest = longest
        self.skips = skips
        self.is_binary = is_binary
        self.scale = scale
        self.width = int(places.max()) + 1
        self.whole = _numbers_of_whole(trie.numbers)

    def numbers(self, x: Array) -> Array:
        """Return the number of each token in rows, [N, C], -1 for one that is in no n-gram."""
        rows = x.reshape((1, -1)) if x.ndim == 1 else x
        if (known := self.whole) is not None and x.dtype.kind == "i" and x.size:
            least, numbers = known
            # What is before the first is beyond the end, too, as a number without a sign.
            places = rows.astype(np.int64, copy=False) - least
            ends = np.minimum(places.view(np.uint64), len(numbers) - 1)
            return numbers.take(ends.view(np.int64))
        found = map(self.trie.numbers.get, rows.reshape(-1).tolist(), repeat(-1))
        return np.fromiter(found, np.intp, rows.size).reshape(rows.shape)

    def __call__(self, x: Array) -> Array:
        """Return float32 [width] for ``x`` [C], [N, width] for [N, C]."""
        numbers, width = self.numbers(x), self.width
        row, ngram = _occurrences(self.trie, numbers, self.longest, self.skips)
        check_allocation(np, (len(numbers), width), np.int64)
        counts = np.bincount(row * width + self.places[ngram], minlength=len(numbers) * width)
        result: Array = counts.reshape((len(numbers), width)).astype(np.float32)
        if self.is_binary:
            result = np.minimum(result, 1)
        if self.scale is not None:
            result = result * self.scale
        return result[0] if x.ndim == 1 else result


def _numbers_of_whole(tokens: dict[Any, int]) -> tuple[int, Array] | None:
    """Return the least of tokens that are close whole numbers, and a table from there on.

    The table says the number of each token, -1 where there is none and at its end.
    """
    if not tokens or not all(isinstance(token, int) for token in tokens):
        return None
    least, most = min(tokens), max(tokens)
    if most - least >= MOST_WHOLE:
        return None
    numbers = np.full(most - least + 2, -1, np.intp)
    numbers[np.array(list(tokens)) - least] = list(tokens.values())
    return least, numbers


def _trie(pool: Sequence[Any], starts: Sequence[int], shortest: int, longest: int) -> Trie:
    """Number prefixes level by level, so that the edges of all levels are sorted as one."""
    tokens: dict[Any, int] = {}
    numbers = np.array([tokens.setdefault(token, len(tokens)) for token in pool], np.intp)
    total = 0
    grams = []
    for n, (start, stop) in enumerate(pairwise((*starts, len(pool))), 1):
        gram = numbers[start:stop].reshape((-1, n))
        if shortest <= n <= longest:
            grams.append((np.arange(total, total + len(gram)), gram))
        total += len(gram)
    states = [np.zeros(len(gram), np.int64) for _, gram in grams]
    edges = np.zeros(0, np.int64)
    for level in range(longest):
        deep = [i for i, (_, gram) in enumerate(grams) if gram.shape[1] > level]
        codes = [states[i] * len(tokens) + grams[i][1][:, level] for i in deep]
        if codes:
            edges = np.concatenate([edges, np.unique(np.concatenate(codes))])
        for i, code in zip(deep, codes, strict=True):
            states[i] = np.searchsorted(edges, code) + 1
    ngram = np.full(len(edges) + 1, -1)
    for (identity, _), state in zip(grams, states, strict=True):
        ngram[state] = identity
    first = np.zeros(len(tokens) + 1, np.intp)
    begin = np.searchsorted(edges, len(tokens))
    first[edges[:begin]] = np.arange(1, begin + 1)
    return Trie(tokens, edges, first, ngram)


def _occurrences(trie: Trie, numbers: Array, longest: int, max_skip: int) -> tuple[Array, Array]:
    """Return row and n-gram of each match. A 1-gram has no neighbors and matches once."""
    states = trie.first[numbers.reshape(-1)]
    begin = np.flatnonzero(states)
    states = states[begin]
    lines, starts = np.divmod(begin, max(numbers.shape[1], 1))
    ends = trie.ngram[states] >= 0
    rows, ngrams = [lines[ends]], [trie.ngram[states[ends]]]
    # Tokens that lie further apart than a row is long are no neighbors.
    for stride in range(1, min(max_skip + 2, numbers.shape[1]) if longest > 1 else 1):
        interruption.check()
        row, start, state = lines, starts, states
        for n in range(1, longest):
            inside = start + n * stride < numbers.shape[1]
            row, start, state = row[inside], start[inside], state[inside]
            state = _step(trie, state, numbers[row, start + n * stride])
            row, start, state = row[state > 0], start[state > 0], state[state > 0]
            ends = trie.ngram[state] >= 0
            rows.append(row[ends])
            ngrams.append(trie.ngram[state[ends]])
    return np.concatenate(rows), np.concatenate(ngrams)


def _step(trie: Trie, state: Array, number: Array) -> Array:
    """Follow the edge with each token, to state 0 if there is none."""
    if not len(trie.edges):
        return np.zeros_like(state)
    wanted = np.where(number < 0, -1, state * len(trie.numbers) + number)
    edge = np.minimum(np.searchsorted(trie.edges, wanted), len(trie.edges) - 1)
    return np.where(trie.edges[edge] == wanted, edge + 1, 0)
