"""TfIdfVectorizer of texts that are cut into runs of letters, without a str per token."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.tfidf import Vectorizer
from tenonnx_cpu.fuse import LOOKED_UP, Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site
from tenonnx_cpu.ml.string_arrays import PLACE, addresses, layout, slots_of
from tenonnx_cpu.ml.tfidf import Counts

if TYPE_CHECKING:
    import onnx_ir as ir

COUNT = JitKernel("ml.tokens", "count_tokens")
NUMBER = JitKernel("ml.tokens", "number_tokens")

# Texts that are worth a second thread.
MIN_TEXTS_PER_THREAD = 16

# Patterns of tokens that are runs of letters which are in a class.
CLASS_RUNS = re.compile(r"(\[[^][\\]+\]|\\[wdWDsS])\+")

# Stands among letters for what is part of no token.
BETWEEN = 255

CHANGES = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@fusion("Tokenizer", domain="com.microsoft", priority=LOOKED_UP)
def fuse_tokens(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a Reshape to one axis and StringNormalizer before it, Flatten and TfIdfVectorizer."""
    flatten = scope.follower(node.outputs[0], "Flatten")
    if flatten is not None and scope.site(flatten).attribute("axis", 1) != 1:
        return None
    counted = scope.follower((flatten or node).outputs[0], "TfIdfVectorizer")
    if counted is None:
        return None
    plain: Any = scope.plain(counted).call
    vectorizer = getattr(plain, "func", plain)
    normalizer = _before(node, "StringNormalizer", scope)
    letters = _letters(scope.site(node), scope.site(normalizer) if normalizer else None)
    if letters is None or not isinstance(vectorizer, Vectorizer):
        return None
    flat = _before(normalizer or node, "Reshape", scope)
    if flat and ((to := scope.site(flat).constant(1)) is None or to.tolist() != [-1]):
        flat = None
    nodes = [each for each in (flat, normalizer, node, flatten, counted) if each]
    texts = Texts(vectorizer, letters, scope.site(node), scope.threads)
    return scope.fused(
        nodes, nodes[0].inputs[:1], lambda plain: functools.partial(_call, texts, bool(flat), plain)
    )


def _before(node: ir.Node, operator: str, scope: Scope) -> ir.Node | None:
    """Return what alone makes a node's first input, for it alone, if it is of an operator."""
    value = node.inputs[0]
    return scope.maker(value, operator) if value and scope.reader(value) else None


def _letters(tokenizer: Site, normalizer: Site | None) -> NDArray | None:
    """Return what becomes of each character of ASCII; ``None`` if tokens are cut otherwise."""
    from tenonnx_array.re2 import compile_fullmatch

    found = CLASS_RUNS.fullmatch(tokenizer.attribute("tokenexp", ""))
    if not found or tokenizer.attribute("separators", ()) or tokenizer.attribute("mark", 0):
        return None
    change: Any = str
    if normalizer is not None:
        change = CHANGES.get(normalizer.attribute("case_change_action", "NONE"))
        is_turkish = normalizer.attribute("locale", "")[:2].lower() in ("tr", "az")
        if change is None or is_turkish or normalizer.attribute("stopwords", ()):
            return None
    if tokenizer.attribute("mincharnum", 1) < 1:
        return None
    is_letter = compile_fullmatch(found[1])
    changed = map(change, map(chr, range(128)))
    return np.array([ord(c) if is_letter(c) else BETWEEN for c in changed], np.uint8)


@cacheable
class Texts:
    """Counts of n-grams of texts.

    Args:
        made: Counts those of tokens.
        letters: What becomes of each character of ASCII in a token, or ``BETWEEN``.
        tokenizer: How tokens are cut.
        threads: How many threads may do it.
    """

    def __init__(self, made: Vectorizer, letters: NDArray, tokenizer: Site, threads: int) -> None:
        for kernel in (COUNT, NUMBER, PLACE):
            kernel.request()
        self._counts, self._threads = Counts(made, threads), threads
        self._numbers = made.trie.numbers
        self._shortest = tokenizer.attribute("mincharnum", 1)
        self._padding = self._numbers.get(tokenizer.attribute("pad_value", ""), -1)
        self._letters = letters
        longest = max(map(len, self._numbers), default=0)
        self._rooms = threads, longest

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no slots: addresses are of this process."""
        return {name: value for name, value in vars(self).items() if name != "_slots"}

    @functools.cached_property
    def _slots(self) -> NDArray | None:
        return slots_of([*self._numbers])

    def __call__(self, texts: NDArray) -> NDArray | None:
        """Return [N, width] for texts [N]; ``None`` if one is not of ASCII or there is none."""
        count, number, fields = COUNT.run, NUMBER.run, layout()
        if count is None or number is None or fields is None or not texts.size:
            return None
        if PLACE.run is None or self._slots is None:
            return None
        lengths, refused = np.empty(len(texts), np.int64), np.zeros(1, np.uint8)
        grain, threads = shared_out(len(texts), len(texts), MIN_TEXTS_PER_THREAD, self._threads)
        words = addresses(texts)
        given = words, *fields, self._letters, self._shortest
        count(*given, lengths, refused, grain, threads)
        length = max(lengths.tolist())
        if refused[0] or not self._counts.takes(len(texts), length):
            return None
        numbers, rooms = np.empty((len(texts), length), np.int64), np.empty(self._rooms, np.uint8)
        number(*given, self._slots, rooms, self._padding, numbers, grain, threads)
        return self._counts(numbers)


@cacheable
def _call(texts: Texts, is_flat: bool, plain: Call, x: NDArray) -> Any:
    if is_flat or x.ndim == 1:
        y = texts(x.reshape(-1))
        if y is not None:
            return y
    return plain(x)
