"""Choosing the next token from logits."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx import RuntimeException

if TYPE_CHECKING:
    from tenonnx_generate.guidance import Guide

NDArray = np.ndarray[Any, np.dtype[Any]]

NEVER = np.float32(-np.inf)


class Search:
    """What a request's options make of logits.

    Args:
        options: Search options, all of them.
        eos: Tokens that end a text.
        row: The number of its sequence in the batch: each draws numbers of its own.
        guide: What the text is held to, if anything.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        eos: tuple[int, ...],
        row: int,
        guide: Guide | None = None,
    ) -> None:
        self.guide = guide
        self._penalty = options["repetition_penalty"]
        self._least = options["min_length"]
        self._repeated = options["no_repeat_ngram_size"]
        self._temperature = options["temperature"]
        self._top_k, self._top_p = options["top_k"], options["top_p"]
        self._draws = options["do_sample"] and self._top_k != 1 and self._temperature > 0
        self._eos = list(eos)
        self._seed = options["random_seed"], row

    @functools.cached_property
    def _random(self) -> np.random.Generator:
        """Where numbers are drawn from; many texts need none, nor the modules for it."""
        return np.random.default_rng(None if self._seed[0] < 0 else self._seed)

    def choose(self, logits: NDArray, sequence: NDArray) -> int:
        """Returns a token for logits [vocabulary], which follow a sequence.

        Raises:
            RuntimeException: No logit is a number, or no token may come.
        """
        scores = self.adjusted(logits, sequence)
        if self.guide is not None:
            scores = self.guide.held(scores)
        token = self._drawn(scores) if self._draws else int(scores.argmax())
        if not scores[token] > NEVER:
            raise RuntimeException("no token may come next, or the logits are no numbers")
        if self.guide is not None:
            self.guide.take(token)
        return token

    def adjusted(self, logits: NDArray, sequence: NDArray) -> NDArray:
        """Returns logits after penalties, and without tokens that may not come yet."""
        ends_early = len(sequence) < self._least and bool(self._eos)
        if self._penalty == 1 and not ends_early and not self._repeated:
            return logits
        scores = logits.astype(np.float32)
        if self._penalty != 1:
            said = scores[sequence]
            scores[sequence] = np.where(said < 0, said * self._penalty, said / self._penalty)
        if ends_early:
            scores[self._eos] = NEVER
        if 0 < self._repeated <= len(sequence):
            scores[_completions(sequence, self._repeated)] = NEVER
        return scores

    def _drawn(self, scores: NDArray) -> int:
        """Returns a token drawn from the likeliest by number, and of these by their chance."""
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
        place = np.searchsorted(reached, self._random.random() * reached[-1], side="right")
        return int(tokens[min(int(place), len(reached) - 1)])


def log_probabilities(logits: NDArray, chosen: int, top: int) -> list[tuple[int, float]]:
    """Returns a token, then the likeliest ones, with the logarithms of their probabilities."""
    wide = logits.astype(np.float64)
    greatest = wide.max()
    wide -= greatest + np.log(np.exp(wide - greatest).sum())
    count = min(max(top, 0), len(wide))
    best = np.argpartition(-wide, count - 1)[:count] if count else np.zeros(0, np.int64)
    best = best[np.lexsort((best, -wide[best]))]
    return [(int(token), float(wide[token])) for token in (chosen, *best)]


def _completions(sequence: NDArray, size: int) -> NDArray:
    """Returns tokens that would make a run of ``size`` tokens that is there already."""
    windows = np.lib.stride_tricks.sliding_window_view(sequence, size)
    latest = sequence[len(sequence) - size + 1 :]
    completions: NDArray = windows[(windows[:, :-1] == latest).all(axis=1), -1]
    return completions
