"""Constraints on a text: a JSON schema, a regular expression or a grammar, by llguidance."""

from __future__ import annotations

import functools
import os
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

# Kinds of guidance, and what the library makes grammars of them by.
GRAMMAR_FORMS = {
    "json_schema": "grammar_from_json_schema",
    "lark_grammar": "grammar_from_lark",
    "regex": "grammar_from_regex",
}

# Tokens are taken one by one if at most one of so many may come.
MAX_FORCED_CHOICES = 16

# Sets of tokens that are kept: a text comes to the same ones again.
MAX_KEPT_SETS = 64

# Grammars of a model that are kept, and how many characters each may have.
MAX_KEPT_GRAMMARS, MAX_KEPT_CHARACTERS = 16, 1 << 16

_vocabularies: WeakKeyDictionary[Model, Vocabulary] = WeakKeyDictionary()
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
        if kind not in GRAMMAR_FORMS:
            raise Refused(f"there is no guidance {kind!r}{did_you_mean(kind, GRAMMAR_FORMS)}")
        if not isinstance(data, str) or len(data) > CONFIG_LIMIT:
            raise Refused(f"{kind} is no text of at most {CONFIG_LIMIT} characters")
        vocabulary = vocabulary_of(model)
        matcher = vocabulary.matcher if len(data) <= MAX_KEPT_CHARACTERS else vocabulary.made
        self._vocabulary, self._first = vocabulary, matcher(kind, data)

    def guide(self) -> Guide:
        """Return what a text from its beginning on is held to."""
        return Guide(self._first.deep_copy(), self._vocabulary)


class Vocabulary:
    """A model's tokens as the library has them, and the latest grammars and sets of tokens.

    Copies of a matcher share what it has found out: which bytes may follow at each place of the
    grammar is computed once for all texts, as far as they come to the same ones.

    Args:
        tokens: As the library has them.
        size: How many tokens the model has.
    """

    def __init__(self, tokens: Any, size: int) -> None:
        self.tokens = tokens
        self.allowed = functools.lru_cache(MAX_KEPT_SETS)(functools.partial(Allowed, size=size))
        """Return the tokens of a mask, the same for the same mask while they are kept."""
        self.matcher = functools.lru_cache(MAX_KEPT_GRAMMARS)(self.made)
        """Return what ``made`` does, the same for the same grammar while it is kept."""

    def made(self, kind: str, data: str) -> Any:
        """Return a matcher at the beginning of a text.

        Raises:
            Refused: The grammar is wrong.
        """
        matcher = needed("llguidance").LLMatcher
        try:
            grammar = getattr(matcher, GRAMMAR_FORMS[kind])(data)
        except ValueError as error:
            raise Refused(f"{kind} is wrong: {error}") from None
        if wrong := matcher.validate_grammar(grammar, self.tokens):
            raise Refused(f"{kind} is wrong: {wrong}")
        made = matcher(self.tokens, grammar, log_level=0)
        # A schema that nothing matches, such as one that is itself, shows at the first token.
        made.compute_bitmask()
        if made.is_error():
            raise Refused(f"{kind} is wrong: no text keeps to it")
        return made


class Allowed:
    """Tokens that may come next.

    Args:
        words: A bit for each token.
        size: How many tokens the model has.
    """

    def __init__(self, words: bytes, size: int) -> None:
        bits = np.unpackbits(np.frombuffer(words, np.uint8), count=size, bitorder="little")
        self._few = MAX_FORCED_CHOICES * np.count_nonzero(bits) <= size
        self._which: NDArray = bits.nonzero()[0] if self._few else bits.view(np.bool_)
        self._which.flags.writeable = False  # all texts that come to the set share it
        self._tokens: list[int] = self._which.tolist() if self._few else []

    def __contains__(self, token: int) -> bool:
        return bool((self._which == token).any() if self._few else self._which[token])

    def masked(self, scores: NDArray) -> NDArray:
        """Return scores [vocabulary], those of other tokens being ``NEVER``."""
        if not self._few:
            return np.where(self._which, scores, NEVER)
        result = np.full_like(scores, NEVER)
        result[self._which] = scores[self._which]
        return result

    def best(self, scores: NDArray) -> tuple[int, np.floating[Any]]:
        """Return the likeliest with its score, which is ``NEVER`` if there is none."""
        if not self._few:
            held = self.masked(scores)
            token = held.argmax()
            return int(token), held[token]
        if not self._tokens:
            return 0, NEVER
        own = scores[self._which]
        place = own.argmax()
        return self._tokens[place], own[place]


class Guide:
    """The state of a text in a grammar.

    Args:
        matcher: The library's.
        vocabulary: The tokens; it keeps what copies of the matcher share.
    """

    def __init__(self, matcher: Any, vocabulary: Vocabulary) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary

    def allowed(self) -> Allowed:
        """Return which tokens may come next; if the library gave up, one that ``take`` refuses."""
        return self._vocabulary.allowed(self._matcher.compute_bitmask())

    def take(self, token: int) -> None:
        """Go on by a token.

        Raises:
            RuntimeException: It may not come, or the library gave up.
        """
        matcher = self._matcher
        if matcher.is_stopped() or not matcher.consume_token(token):
            self._check()

    def copy(self) -> Guide:
        """Return another that is at the same place, and goes on by itself."""
        return Guide(self._matcher.deep_copy(), self._vocabulary)

    def restart(self, tokens: Sequence[int] = ()) -> None:
        """Go back to the beginning, and on by some tokens."""
        self._matcher.reset()
        for token in tokens:
            self.take(token)

    def _check(self) -> None:
        if self._matcher.is_error():
            # Its limits are of all texts that share it: the next ones begin with another.
            self._vocabulary.matcher.cache_clear()
            raise RuntimeException(f"guidance cannot go on: {self._matcher.get_error()}")


def vocabulary_of(model: Model) -> Vocabulary:
    """Return a model's tokens as the library has them, which takes it a while and is made once.

    Raises:
        Refused: The model has no token that ends a text, or the library cannot read its tokens.
        NotInstalled: llguidance is not there.
    """
    about = model.description
    if not about.eos:
        raise Refused("guidance wants a token that ends the text, and the model has none")
    with _making:
        if model not in _vocabularies:
            path = os.path.join(about.folder, "tokenizer.json")
            text = read_text(path, TOKENIZER_LIMIT).strip()
            if not text.startswith("{"):  # which the library would take for a name
                raise Refused(f"{path} is no tokenizer")
            try:
                made = needed("llguidance").LLTokenizer(
                    text, n_vocab=about.vocabulary, eos_token=list(about.eos)
                )
            except (ValueError, RuntimeError) as error:
                raise Refused(f"{path} cannot guide: {error}") from error
            _vocabularies[model] = Vocabulary(made, about.vocabulary)
        return _vocabularies[model]
