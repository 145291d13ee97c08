"""Constraints on a text: a JSON schema, a regular expression or a grammar, by llguidance."""

from __future__ import annotations

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

FEW, SMALL = 8, 256
"""Tokens are taken one by one if no more than one of ``FEW`` words of bits has any, of many."""

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


class Guide:
    """Where a text is in a grammar.

    Args:
        matcher: The library's.
        size: How many tokens the model has.
    """

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher, self._size = matcher, size

    def allowed(self) -> NDArray:
        """Returns which tokens may come next, [vocabulary] of booleans.

        Raises:
            RuntimeException: The library gave up.
        """
        return _unpacked(self._words())[: self._size].view(np.bool_)

    def held(self, scores: NDArray) -> NDArray:
        """Returns scores [vocabulary], those of tokens that may not come next being ``NEVER``.

        Raises:
            RuntimeException: The library gave up.
        """
        words = self._words()
        if len(words) <= SMALL or FEW * np.count_nonzero(words) > len(words):
            return np.where(_unpacked(words)[: self._size].view(np.bool_), scores, NEVER)
        places = words.nonzero()[0]
        bits = _unpacked(words[places]).nonzero()[0]
        tokens = places[bits >> 5] * 32 + (bits & 31)
        tokens = tokens[: np.searchsorted(tokens, self._size)]
        result = np.full_like(scores, NEVER)
        result[tokens] = scores[tokens]
        return result

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

    def _words(self) -> NDArray:
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        return words

    def _check(self) -> None:
        if self._matcher.is_error():
            raise RuntimeException(f"guidance cannot go on: {self._matcher.get_error()}")


def _unpacked(words: NDArray) -> NDArray:
    """Returns the bits of words, one to a byte."""
    return np.unpackbits(words.view(np.uint8), bitorder="little")


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
