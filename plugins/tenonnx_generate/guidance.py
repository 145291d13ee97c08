"""Constraints on a text: a JSON schema, a regular expression or a grammar, by llguidance."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tenonnx import RuntimeException
from tenonnx.errors import did_you_mean
from tenonnx_generate.errors import Refused
from tenonnx_generate.files import CONFIG_LIMIT, TOKENIZER_LIMIT, needed, read_text
from tenonnx_generate.model import Model
from tenonnx_generate.search import NEVER

NDArray = np.ndarray[Any, np.dtype[Any]]

KINDS = {
    "json_schema": "grammar_from_json_schema",
    "lark_grammar": "grammar_from_lark",
    "regex": "grammar_from_regex",
}
"""Kinds of guidance, and what the library makes grammars of them by."""

FEW = 16
"""Tokens are taken one by one if at most one of so many may come."""

KEPT = 64
"""Sets of tokens that are kept: a text comes to the same ones again."""

_vocabularies: WeakKeyDictionary[Model, Any] = WeakKeyDictionary()
_making = threading.Lock()


class Guidance:
    """A grammar that a model's tokens are to keep to.

    Args:
        model: The model.
        kind: ``json_schema``, ``regex`` or ``lark_grammar``.
        data: The schema, expression or grammar.

    Raises:
        Refused: It is none, or the model has no token that ends a text.
        NotInstalled: llguidance is not there.
    """

    def __init__(self, model: Model, kind: str, data: str) -> None:
        if kind not in KINDS:
            raise Refused(f"there is no guidance {kind!r}{did_you_mean(kind, KINDS)}")
        if not isinstance(data, str) or len(data) > CONFIG_LIMIT:
            raise Refused(f"{kind} is no text of at most {CONFIG_LIMIT} characters")
        self._matcher = needed("llguidance").LLMatcher
        self._tokens = vocabulary(model)
        self._size = model.description.vocabulary
        try:
            self._grammar = getattr(self._matcher, KINDS[kind])(data)
        except ValueError as error:
            raise Refused(f"{kind} is wrong: {error}") from None
        if wrong := self._matcher.validate_grammar(self._grammar, self._tokens):
            raise Refused(f"{kind} is wrong: {wrong}")

    def guide(self) -> Guide:
        """Returns what a text from its beginning on is held to."""
        return Guide(self._matcher(self._tokens, self._grammar, log_level=0), self._size)


class Allowed:
    """Tokens that may come next.

    Args:
        words: A bit for each token.
        size: How many tokens the model has.
    """

    def __init__(self, words: bytes, size: int) -> None:
        bits = np.unpackbits(np.frombuffer(words, np.uint8), count=size, bitorder="little")
        self._few = FEW * np.count_nonzero(bits) <= size
        self._which: NDArray = bits.nonzero()[0] if self._few else bits.view(np.bool_)
        self._which.flags.writeable = False  # all texts that come to the set share it

    def __contains__(self, token: int) -> bool:
        return bool((self._which == token).any() if self._few else self._which[token])

    def held(self, scores: NDArray) -> NDArray:
        """Returns scores [vocabulary], those of other tokens being ``NEVER``."""
        if not self._few:
            return np.where(self._which, scores, NEVER)
        result = np.full_like(scores, NEVER)
        result[self._which] = scores[self._which]
        return result

    def best(self, scores: NDArray) -> tuple[int, np.floating[Any]]:
        """Returns the likeliest with its score, which is ``NEVER`` if there is none."""
        if not self._few:
            held = self.held(scores)
            token = held.argmax()
            return int(token), held[token]
        if not len(self._which):
            return 0, NEVER
        token = self._which[scores.take(self._which).argmax()]
        return int(token), scores[token]


_allowed = functools.lru_cache(KEPT)(Allowed)


class Guide:
    """Where a text is in a grammar.

    Args:
        matcher: The library's.
        size: How many tokens the model has.
    """

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher, self._size = matcher, size

    def allowed(self) -> Allowed:
        """Returns which tokens may come next.

        Raises:
            RuntimeException: The library gave up.
        """
        words = self._matcher.compute_bitmask()
        self._check()
        return _allowed(words, self._size)

    def take(self, token: int) -> None:
        """Goes on by a token.

        Raises:
            RuntimeException: It may not come, or the library gave up.
        """
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
            self._check()

    def copy(self) -> Guide:
        """Returns another that is at the same place, and goes on by itself."""
        return Guide(self._matcher.deep_copy(), self._size)

    def restart(self, tokens: Sequence[int] = ()) -> None:
        """Goes back to the beginning, and on by some tokens."""
        self._matcher.reset()
        for token in tokens:
            self.take(token)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise RuntimeException(f"guidance cannot go on: {self._matcher.get_error()}")


def vocabulary(model: Model) -> Any:
    """Returns the library's form of a model's tokens, which takes it a while and is made once.

    Raises:
        Refused: The model has no token that ends a text, or the library cannot read its tokens.
        NotInstalled: llguidance is not there.
    """
    about = model.description
    if not about.eos:
        raise Refused("guidance wants a token that ends the text, and the model has none")
    with _making:
        if model not in _vocabularies:
            path = about.folder / "tokenizer.json"
            text = read_text(path, TOKENIZER_LIMIT).strip()
            if not text.startswith("{"):  # which the library would take for a name
                raise Refused(f"{path} is no tokenizer")
            try:
                made = needed("llguidance").LLTokenizer(
                    text, n_vocab=about.vocabulary, eos_token=list(about.eos)
                )
            except (ValueError, RuntimeError) as error:
                raise Refused(f"{path} cannot guide: {error}") from error
            _vocabularies[model] = made
        return _vocabularies[model]
