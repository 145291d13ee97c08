"""Changes of the search operators to the scores of the next token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tenonnx import Array

# The score of a token that must not come next.
LOWEST = np.finfo(np.float32).min


@dataclass(frozen=True)
class Rules:
    """Tokens that are penalized or forbidden.

    Attributes:
        end: Id of the token that ends a sequence.
        pad: Id of the padding behind it.
        vocabulary: How many tokens there are; as many as the model has scores if not positive.
        shortest: Sequences shorter than this do not end.
        repetition: Scores of tokens that are there already are divided by it, negative ones
            multiplied (Keskar et al. 2019, CTRL, section 4.1).
        ngram: No sequence of as many tokens comes twice; 0 for no such rule.
        temperature: Scores are divided by it.
        allowed: ``[vocabulary]``, zero for tokens that must not come.
        allowed_first: The same for the first token, ``[batch, vocabulary]``.
        present: ``[batch, vocabulary]``, ones where ``presence`` is taken off.
        presence: The presence penalty.
    """

    end: int
    pad: int
    vocabulary: int = -1
    shortest: int = 0
    repetition: float = 1.0
    ngram: int = 0
    temperature: float = 1.0
    allowed: Array | None = None
    allowed_first: Array | None = None
    present: Array | None = None
    presence: float = 0.0

    def cut(self, logits: Array) -> Array:
        """Return the model's scores of the vocabulary; it may have some of no token."""
        return logits[:, : self.vocabulary] if self.vocabulary > 0 else logits

    def apply(self, scores: Array, sequences: Array, first: bool) -> Array:
        """Return the scores ``[rows, vocabulary]`` under these rules, in an array of their own."""
        scores = scores.astype(np.float32)
        if self.repetition != 1.0:
            rows = np.arange(len(scores))[:, None]
            seen = scores[rows, sequences]
            penalty = np.float32(self.repetition)
            scores[rows, sequences] = np.where(seen < 0, seen * penalty, seen / penalty)
        if 0 < self.ngram <= sequences.shape[1]:
            forbid_repeated(scores, sequences, self.ngram)
        if self.allowed is not None:
            scores[:, self.allowed == 0] = LOWEST
        if first and self.allowed_first is not None:
            beams = len(scores) // len(self.allowed_first)
            scores[np.repeat(self.allowed_first == 0, beams, axis=0)] = LOWEST
        if sequences.shape[1] < self.shortest:
            scores[:, self.end] = LOWEST
        if self.temperature not in (0.0, 1.0):
            scores /= np.float32(self.temperature)
        if self.presence and self.present is not None:
            scores -= self.present * np.float32(self.presence)
        return scores


def forbid_repeated(scores: Array, sequences: Array, size: int) -> None:
    """Rules out every token that would end a sequence of ``size`` tokens which is there already."""
    windows = np.lib.stride_tricks.sliding_window_view(sequences, size, axis=1)
    tail = sequences[:, sequences.shape[1] - size + 1 :]
    rows, places = np.nonzero((windows[:, :, :-1] == tail[:, None]).all(axis=2))
    scores[rows, windows[rows, places, -1]] = LOWEST


def log_softmax(logits: Array) -> Array:
    """Return logarithms of probabilities along the last axis, in float32."""
    logits = logits.astype(np.float32)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def keep_nucleus(scores: Array, mass: float, least: int, filler: float) -> Array:
    """Replace the scores of all but the likeliest tokens, whose probabilities reach ``mass``.

    Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, section 3.1.

    Args:
        scores: ``[rows, vocabulary]``.
        mass: A sum of probabilities; from 1 on nothing is replaced, nor at 0.
        least: How many tokens are kept in any case.
        filler: The score of the others.
    """
    if not 0 < mass < 1:
        return scores
    ascending = np.argsort(scores, axis=-1, kind="stable")
    sorted_scores = np.take_along_axis(scores, ascending, axis=-1)
    below = np.exp(log_softmax(sorted_scores)).cumsum(axis=-1) <= 1 - mass
    below[:, below.shape[1] - max(least, 1) :] = False
    filtered = scores.copy()
    np.put_along_axis(filtered, ascending, np.where(below, filler, sorted_scores), axis=-1)
    return filtered
