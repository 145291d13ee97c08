"""Choosing the next token from logits."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx import RuntimeException
from tenonnx_generate.suppression import NOTHING, Suppressed

if TYPE_CHECKING:
    from tenonnx_generate.guidance import Guide

NDArray = np.ndarray[Any, np.dtype[Any]]

Distribution = tuple[NDArray, NDArray]
"""Tokens, and the chance of each or sums of them."""

NEVER = np.float32(-np.inf)


class Search:
    """The choice of tokens from logits by a request's options.

    Args:
        options: Search options, all of them.
        eos: Tokens that end a text.
        row: The number of its sequence in the batch: each draws numbers of its own.
        guide: What the text is held to, if anything.
        suppressed: Tokens that may not come.

    Attributes:
        begin: How long the sequence is when the first token after a prompt is chosen.
        draws: Tokens are drawn; if not, the likeliest is taken.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        eos: tuple[int, ...],
        row: int,
        guide: Guide | None = None,
        suppressed: Suppressed = NOTHING,
    ) -> None:
        self.guide = guide
        self.begin = -1
        self._never, self._not_first = map(list, (suppressed.always, suppressed.first))
        self._penalty = options["repetition_penalty"]
        self._least = options["min_length"]
        self._repeated = options["no_repeat_ngram_size"]
        self._temperature = options["temperature"]
        self._top_k, self._top_p = options["top_k"], options["top_p"]
        self.draws = options["do_sample"] and self._top_k != 1 and self._temperature > 0
        self._eos = list(eos)
        self._seed = options["random_seed"], row

    @functools.cached_property
    def _random(self) -> np.random.Generator:
        """The source of random numbers; many texts need none, nor the modules for it."""
        return np.random.default_rng(None if self._seed[0] < 0 else self._seed)

    def choose(self, logits: NDArray, sequence: NDArray) -> int:
        """Returns a token for logits [vocabulary], which follow a sequence.

        Raises:
            RuntimeException: No logit is a number, or no token may come.
        """
        if self.draws:
            scores = self.scores(logits, sequence)
            token = self._drawn(scores)
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
        """Returns a token as ``choose`` does, with the same chances, if it can the drafted one.

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
        """Returns logits after penalties, and without tokens that may not come."""
        scores = self.adjusted(logits, sequence)
        return scores if self.guide is None else self.guide.allowed().held(scores)

    def adjusted(self, logits: NDArray, sequence: NDArray) -> NDArray:
        """Returns logits after penalties, and without tokens that may not come yet."""
        ends_early = len(sequence) < self._least and bool(self._eos)
        begins = len(sequence) == self.begin and bool(self._not_first)
        plain = self._penalty == 1 and not self._repeated and not self._never
        if plain and not ends_early and not begins:
            return logits
        scores = logits.astype(np.float32)
        if self._penalty != 1:
            said = scores[sequence]
            scores[sequence] = np.where(said < 0, said * self._penalty, said / self._penalty)
        for applies, tokens in (
            (True, self._never),
            (begins, self._not_first),
            (ends_early, self._eos),
        ):
            if applies:
                scores[tokens] = NEVER
        if 0 < self._repeated <= len(sequence):
            scores[_completions(sequence, self._repeated)] = NEVER
        return scores

    def distribution(self, scores: NDArray) -> Distribution:
        """Returns the tokens that may be drawn, the likeliest first, and the chance of each.

        Chances are as they are after ``temperature``, ``top_k`` and ``top_p``; they add up to 1.

        Raises:
            RuntimeException: No score is a number.
        """
        tokens, reached = self._reached(scores)
        return tokens, np.diff(reached, prepend=0.0) / reached[-1]

    def drawn(self, tokens: NDArray, chances: NDArray) -> int:
        """Returns one of some tokens by their chances, which need not add up to 1."""
        return self._picked(tokens, np.cumsum(chances))

    def _best(self, scores: NDArray) -> tuple[int, np.floating[Any]]:
        """Returns the likeliest token that may come, with its score."""
        if self.guide is not None:
            return self.guide.allowed().best(scores)
        token = int(scores.argmax())
        return token, scores[token]

    def _drawn(self, scores: NDArray) -> int:
        return self._picked(*self._reached(scores))

    def _picked(self, tokens: NDArray, reached: NDArray) -> int:
        place = np.searchsorted(reached, self._random.random() * reached[-1], side="right")
        return int(tokens[min(int(place), len(reached) - 1)])

    def _reached(self, scores: NDArray) -> Distribution:
        """Returns the tokens to draw from, and sums of their chances.

        These are the likeliest by number, and of them the likeliest by their chances.
        """
        size = len(scores)
        count = min(self._top_k or size, size)
        best = np.argpartition(scores, size - count)[size - count :] if count < size else None
        tokens = np.arange(size) if best is None else np.sort(best)
        chosen = scores[tokens].astype(np.float64)
        order = np.argsort(-chosen, kind="stable")
        tokens, chosen = tokens[order], chosen[order]
        with np.errstate(invalid="ignore"):  # of what is no number
            chances = np.exp((chosen - chosen[0]) / self._temperature)
        reached = np.cumsum(chances)
        if not np.isfinite(reached[-1]):
            raise RuntimeException("no token may come next, or the logits are no numbers")
        if 0 < self._top_p < 1:
            # A token counts if those before it are not yet likely enough.
            kept = np.searchsorted(reached - chances, self._top_p * reached[-1])
            reached = reached[: max(int(kept), 1)]
        return tokens[: len(reached)], reached


def log_probabilities(logits: NDArray, chosen: int, top: int) -> list[tuple[int, float]]:
    """Returns a token, then the likeliest ones, with the logarithms of their probabilities."""
    wide = logits.astype(np.float64)
    greatest = wide.max()
    wide -= greatest + np.log(np.exp(wide - greatest).sum())
    count = min(max(top, 0), len(wide))
    best = np.argpartition(-wide, count - 1)[:count] if count else np.zeros(0, np.int64)
    best = best[np.lexsort((best, -wide[best]))]
    return [(int(token), float(wide[token])) for token in (chosen, *best)]


def _chances(distribution: Distribution, wanted: NDArray) -> NDArray:
    """Returns the chance of each of some tokens: 0 of those that are not in a distribution."""
    tokens, chances = distribution
    order = np.argsort(tokens)
    places = np.minimum(np.searchsorted(tokens, wanted, sorter=order), len(tokens) - 1)
    found = order[places]
    return np.where(tokens[found] == wanted, chances[found], 0.0)


def _completions(sequence: NDArray, size: int) -> NDArray:
    """Returns tokens that would make a run of ``size`` tokens that is there already."""
    windows = np.lib.stride_tricks.sliding_window_view(sequence, size)
    latest = sequence[len(sequence) - size + 1 :]
    completions: NDArray = windows[(windows[:, :-1] == latest).all(axis=1), -1]
    return completions
