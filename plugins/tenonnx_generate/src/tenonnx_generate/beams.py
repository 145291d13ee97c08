"""Search by beams: the likeliest continuations of a sequence, side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx import RuntimeException

NDArray = np.ndarray[Any, np.dtype[Any]]

# The logarithm of a probability, the beam that goes on, and the token it goes on with.
Candidate = tuple[float, int, int]


class Beams:
    """The beams of one sequence: those that go on, and the texts of those that have ended.

    A beam's total is the logarithm of its probability after the prompt. Texts are ordered by
    ``total / length ** length_penalty``, where the length counts the prompt and leaves out the
    token that ends the text, as onnxruntime-genai counts.

    Args:
        options: Search options, all of them.
        eos: Tokens that end a text.

    Attributes:
        totals: Those of the beams that go on, the highest first. A prompt is one beam.
        done: No beam goes on any more.
    """

    def __init__(self, options: Mapping[str, Any], eos: Collection[int]) -> None:
        self._count, self._eos = options["num_beams"], frozenset(eos)
        self._penalty, self._early = options["length_penalty"], options["early_stopping"]
        # Each token that ends a text may take a candidate of every beam, and all are to go on.
        self._width = (1 + max(len(self._eos), 1)) * self._count
        self._ended: list[tuple[float, NDArray]] = []
        self.totals = [0.0]
        self.done = False

    def advance(self, scores: NDArray, sequences: Sequence[NDArray]) -> list[tuple[int, int]]:
        """Go on by a token.

        Args:
            scores: Logits [beams, vocabulary] of what comes next.
            sequences: The tokens of each beam.

        Returns:
            The beams that go on from here, the likeliest first, each as the number of the beam
            that it continues, and its token.

        Raises:
            RuntimeException: The logits are no numbers, or no token may come.
        """
        candidates = self._candidates(scores)
        if not candidates:
            raise RuntimeException("no token may come next, or the logits are no numbers")
        going: list[Candidate] = []
        for place, candidate in enumerate(candidates):
            total, beam, token = candidate
            if token not in self._eos:
                going.append(candidate)
            elif place < self._count:
                self._end(total, sequences[beam].copy())
            if len(going) == self._count:
                break
        self.totals = [total for total, _, _ in going]
        self.done = not going or self._enough(candidates[0][0], len(sequences[0]))
        return [(beam, token) for _, beam, token in going]

    def best(self, sequences: Sequence[NDArray]) -> list[NDArray]:
        """Return the best texts, as if the search ended here: as many as beams, if there are.

        Args:
            sequences: The tokens of each beam that goes on.
        """
        ended = self._ended.copy()
        if not self.done:
            for total, tokens in zip(self.totals, sequences, strict=True):
                self._end(total, tokens)
        found, self._ended = self._ended, ended
        return [tokens for _, tokens in found]

    def _end(self, total: float, tokens: NDArray) -> None:
        """Keep a text if it is among the best; of equals, the earlier one."""
        score = self._score(total, len(tokens))
        place = sum(other >= score for other, _ in self._ended)
        self._ended.insert(place, (score, tokens))
        del self._ended[self._count :]

    def _score(self, total: float, length: int) -> float:
        return float(total / max(length, 1) ** self._penalty)

    def _enough(self, total: float, length: int) -> bool:
        """Return whether texts enough have ended, and none that is likelier would."""
        if len(self._ended) < self._count:
            return False
        return self._early or self._ended[-1][0] >= self._score(total, length)

    def _candidates(self, scores: NDArray) -> list[Candidate]:
        """Return the likeliest ways to go on, the likeliest first."""
        found: list[Candidate] = []
        for beam, (logits, total) in enumerate(zip(scores, self.totals, strict=True)):
            highest = logits.max()
            if not np.isfinite(highest):  # NaN is the maximum of what has it
                raise RuntimeException("no token may come next, or the logits are no numbers")
            size = len(logits)
            width = min(self._width, size)
            tokens = np.argpartition(logits, size - width)[size - width :]
            # log softmax, of the tokens that count
            rest = np.log(np.exp(logits - highest).sum(dtype=np.float64)) + float(highest)
            totals = logits[tokens].astype(np.float64) - rest + total
            for each, token in zip(totals.tolist(), tokens.tolist(), strict=True):
                if each > -np.inf:
                    found.append((each, beam, token))
        found.sort(key=lambda each: (-each[0], each[1], each[2]))
        return found[: self._width]
