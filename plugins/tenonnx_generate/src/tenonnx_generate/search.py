"""Choosing the next token from logits."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx import RuntimeException
from tenonnx_generate.drawing import Distribution, Draw, likeliest, picked
from tenonnx_generate.options import OPTIONS, GeneratorParams
from tenonnx_generate.suppression import NO_SUPPRESSION, Suppressed

if TYPE_CHECKING:
    from tenonnx_generate.guidance import Guide

NDArray = np.ndarray[Any, np.dtype[Any]]

NEVER = np.float32(-np.inf)


class Search:
    """The choice of tokens from logits by a request's options.

    Args:
        options: Search options; those that are left out have their defaults.
        eos: Tokens that end a text.
        row: The number of its sequence in the batch: each draws numbers of its own.
        guide: What the text is held to, if anything.
        suppressed: Tokens that may not come.
        bias: Numbers that are added to the logits of tokens.

    Attributes:
        begin: How long the sequence is when the first token after a prompt is chosen; -1 while
            there is no prompt. Penalties for frequency and presence count the tokens after it.
        draws: Tokens are drawn; if not, the likeliest is taken.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        eos: tuple[int, ...],
        row: int,
        guide: Guide | None = None,
        suppressed: Suppressed = NO_SUPPRESSION,
        bias: Mapping[int, float] | None = None,
    ) -> None:
        options = {name: option.default for name, option in OPTIONS.items()} | dict(options)
        self.guide = guide
        self.begin = -1
        self._never, self._not_first = map(list, (suppressed.always, suppressed.first))
        self._penalty = options["repetition_penalty"]
        self._least = options["min_length"]
        self._repeated = options["no_repeat_ngram_size"]
        self._frequency, self._presence = options["frequency_penalty"], options["presence_penalty"]
        self._bias = list(bias or ()), np.array(list((bias or {}).values()), np.float32)
        self._options = options
        self.draws = options["do_sample"] and options["top_k"] != 1 and options["temperature"] > 0
        self._eos = list(eos)
        self._seed = options["random_seed"], row

    @functools.cached_property
    def _random(self) -> np.random.Generator:
        """The source of random numbers; many texts need none, nor the modules for it."""
        return np.random.default_rng(None if self._seed[0] < 0 else self._seed)

    def choose(self, logits: NDArray, sequence: NDArray) -> int:
        """Return a token for logits [vocabulary], which follow a sequence.

        Raises:
            RuntimeException: No logit is a number, or no token may come.
        """
        if self.draws:
            scores = self.scores(logits, sequence)
            token = Draw(scores, self._options).token(self._random)
            score = scores[token]
        else:
            token, score = self._best(self.adjusted(logits, sequence))
        if not score > NEVER:
            raise RuntimeException("no token may come next, or the logits are no numbers")
        if self.guide is not None:
            self.guide.take(token)
        return token

    def choose_drafted(
        self, logits: NDArray, sequence: NDArray, drafted: int, by: Distribution | None
    ) -> int:
        """Return a token as ``choose`` does, with the same chances, if it can the drafted one.

        Args:
            logits: Those of what follows.
            sequence: What they follow.
            drafted: A token.
            by: What it was drawn from; nothing if it was not drawn.

        Raises:
            RuntimeException: No logit is a number, or no token may come.
        """
        if not self.draws:
            return self.choose(logits, sequence)
        tokens, chances = self.distribution(self.scores(logits, sequence))
        others = (np.array([drafted]), np.ones(1)) if by is None else by
        its = _chances(others, tokens)
        own, drawn = (
            _chances(each, np.array([drafted]))[0] for each in ((tokens, chances), others)
        )
        # Speculative sampling: accept the draft with the ratio of both chances, otherwise draw from
        # the excess of the model's chances over the draft's. In sum these are the model's chances.
        if self._random.random() * drawn < own:
            token = drafted
        else:
            rest = np.maximum(chances - its, 0)
            # All of them vanish by rounding alone: then the distributions are the same.
            token = self.drawn(tokens, rest if rest.any() else chances)
        if self.guide is not None:
            self.guide.take(token)
        return token

    def scores(self, logits: NDArray, sequence: NDArray) -> NDArray:
        """Return logits after penalties, and without tokens that may not come."""
        scores = self.adjusted(logits, sequence)
        return scores if self.guide is None else self.guide.allowed().masked(scores)

    def adjusted(self, logits: NDArray, sequence: NDArray) -> NDArray:
        """Return logits after penalties, and without tokens that may not come yet."""
        never = [*self._never]
        if len(sequence) == self.begin:
            never += self._not_first
        if len(sequence) < self._least:
            never += self._eos
        penalized = self._penalty != 1 or self._frequency or self._presence
        if not (penalized or never or self._repeated or self._bias[0]):
            return logits
        scores = logits.astype(np.float32)
        if penalized:
            self._penalize(scores, sequence)
        if self._bias[0]:
            scores[self._bias[0]] += self._bias[1]
        if 0 < self._repeated <= len(sequence):
            scores[_completions(sequence, self._repeated)] = NEVER
        if never:
            scores[never] = NEVER
        return scores

    def _penalize(self, scores: NDArray, sequence: NDArray) -> None:
        """Make tokens of the sequence less likely, or more."""
        if self._penalty != 1:
            said = scores[sequence]
            scores[sequence] = np.where(said < 0, said * self._penalty, said / self._penalty)
        if self._frequency or self._presence:
            tokens, counts = np.unique(sequence[max(self.begin, 0) :], return_counts=True)
            scores[tokens] -= (self._frequency * counts + self._presence).astype(np.float32)

    def distribution(self, scores: NDArray) -> Distribution:
        """Return the tokens that may be drawn, and the chance of each.

        Raises:
            RuntimeException: No score is a number.
        """
        return Draw(scores, self._options).distribution()

    def drawn(self, tokens: NDArray, chances: NDArray) -> int:
        """Return one of some tokens by their chances, which need not add up to 1."""
        return int(tokens[picked(chances, self._random.random())])

    def _best(self, scores: NDArray) -> tuple[int, np.floating[Any]]:
        """Return the likeliest token that may come, with its score."""
        if self.guide is not None:
            return self.guide.allowed().best(scores)
        token = int(scores.argmax())
        return token, scores[token]


def search_of(params: GeneratorParams, row: int, **changes: Any) -> Search:
    """Return the choice of tokens that a text's parameters ask for.

    Args:
        params: The parameters.
        row: The number of the text in its batch.
        changes: Search options that replace those of the parameters.
    """
    held = params.guidance
    return Search(
        params.get_search_options() | changes,
        tuple(params.ends),
        row,
        None if held is None else held.guide(),
        params.suppressed,
        params.logit_bias,
    )


def log_probabilities(logits: NDArray, chosen: int, top: int) -> list[tuple[int, float]]:
    """Return a token, then the likeliest ones, with the logarithms of their probabilities."""
    greatest = logits.max()
    spread = np.exp(np.subtract(logits, greatest, dtype=np.float32))
    scale = float(greatest) + float(np.log(spread.sum(dtype=np.float64)))
    count = min(max(top, 0), len(logits))
    best = likeliest(logits, count) if count else np.zeros(0, np.int64)
    best = best[np.argsort(-logits[best], kind="stable")]
    return [(int(token), float(logits[token]) - scale) for token in (chosen, *best)]


def _chances(distribution: Distribution, wanted: NDArray) -> NDArray:
    """Return the chance of each of some tokens: 0 of those that are not in a distribution."""
    tokens, chances = distribution
    places = np.minimum(np.searchsorted(tokens, wanted), len(tokens) - 1)
    return np.where(tokens[places] == wanted, chances[places], 0.0)


def _completions(sequence: NDArray, size: int) -> NDArray:
    """Return tokens that would make a run of ``size`` tokens that is there already."""
    windows = np.lib.stride_tricks.sliding_window_view(sequence, size)
    latest = sequence[len(sequence) - size + 1 :]
    completions: NDArray = windows[(windows[:, :-1] == latest).all(axis=1), -1]
    return completions
