"""Tokens that may come next, proposed before the model is run on them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tenonnx_generate.cache import reserve
from tenonnx_generate.decoder import Decoder
from tenonnx_generate.drawing import Distribution
from tenonnx_generate.guidance import Guide
from tenonnx_generate.model import Model
from tenonnx_generate.search import Search
from tenonnx_generate.speculation import Statistics

NDArray = np.ndarray[Any, np.dtype[Any]]

# Tokens that a draft model runs at once.
DRAFT_CHUNK_TOKENS = 1024


@dataclass(frozen=True)
class Proposal:
    """Tokens that may come next.

    Attributes:
        tokens: They.
        drawn: Of tokens that were drawn, the distribution of each; of others nothing.
    """

    tokens: list[int]
    drawn: list[Distribution]


class Drafter(Protocol):
    """Proposes tokens."""

    def propose(self, sequence: NDArray, most: int, guide: Guide | None) -> Proposal:
        """Return tokens that may follow a sequence, at most so many."""


class ModelDrafter:
    """Proposes what a smaller model says, chosen as the large one's tokens are.

    Args:
        model: The draft model.
        options: Search options, all of them.
        eos: Tokens that end a text of the large model.
        limit: How many tokens a sequence may have.
        statistics: It is told of every run.
    """

    def __init__(
        self,
        model: Model,
        options: Mapping[str, Any],
        eos: tuple[int, ...],
        limit: int,
        statistics: Statistics,
    ) -> None:
        self._room = min(limit, model.description.context)
        in_place = bool(options["past_present_share_buffer"])
        in_place = bool(model.description.search.get("past_present_share_buffer", in_place))
        self._decoder = Decoder(model, 1, self._room, in_place=in_place)
        self._tokens = reserve((self._room,), np.dtype(np.int32))
        self._eos, self._statistics = frozenset(eos), statistics
        # A number beside the row's: what is drafted is drawn by itself.
        self._search = Search(options, eos, 1)

    def propose(self, sequence: NDArray, most: int, guide: Guide | None) -> Proposal:
        """Return tokens that may follow, fewer where its context or the text ends."""
        count = len(sequence)
        most = min(most, self._room - count)
        if most < 1:
            return Proposal([], [])
        # A copy: drafted tokens may be refused, and the sequence's own guide must not have them.
        self._search.guide = None if guide is None else guide.copy()
        logits = self._caught_up(sequence)
        tokens: list[int] = []
        drawn: list[Distribution] = []
        while True:
            scores = self._search.scores(logits, self._tokens[: count + len(tokens)])
            if not np.isfinite(scores.max()):
                break
            if self._search.draws:
                drawn.append(self._search.distribution(scores))
                token = self._search.drawn(*drawn[-1])
            else:
                token = int(scores.argmax())
            tokens.append(token)
            if len(tokens) == most or token in self._eos:
                break
            if self._search.guide is not None:
                self._search.guide.take(token)
            self._tokens[count + len(tokens) - 1] = token
            logits = self._run(np.array([token]))
        return Proposal(tokens, drawn)

    def _caught_up(self, sequence: NDArray) -> NDArray:
        """Run what it has not run of a sequence; return the logits that follow."""
        count = len(sequence)
        had = min(self._decoder.lengths[0], count - 1)
        differ = self._tokens[:had] != sequence[:had]
        had = int(differ.argmax()) if differ.any() else had
        self._decoder.lengths[0] = had
        self._tokens[had:count] = sequence[had:]
        logits = np.zeros(0)
        for start in range(had, count, DRAFT_CHUNK_TOKENS):
            logits = self._run(self._tokens[start : min(start + DRAFT_CHUNK_TOKENS, count)])
        return logits

    def _run(self, tokens: NDArray) -> NDArray:
        self._statistics.draft_forward_passes += 1
        found: NDArray = self._decoder.run(0, tokens[None])[0]
        return found


class PatternDrafter:
    """Proposes what followed the last few tokens where they came before.

    Args:
        size: Tokens of a pattern, and the one that follows it.
        chained: Looks up what follows the proposed ones, until there are as many as may be.
    """

    def __init__(self, size: int, *, chained: bool) -> None:
        self._size, self._chained = size - 1, chained

    def propose(self, sequence: NDArray, most: int, guide: Guide | None) -> Proposal:
        """Return tokens that may follow; none where the pattern is new."""
        tokens: list[int] = []
        while len(tokens) < most:
            found = self._followed(np.append(sequence, tokens), most - len(tokens))
            tokens += found
            if not found or not self._chained:
                break
        return Proposal(tokens if guide is None else _allowed(tokens, guide.copy()), [])

    def _followed(self, text: NDArray, most: int) -> list[int]:
        if len(text) <= self._size:
            return []
        windows = np.lib.stride_tricks.sliding_window_view(text[:-1], self._size)
        places = np.flatnonzero((windows == text[-self._size :]).all(axis=1))
        if not len(places):
            return []
        start = int(places[-1]) + self._size
        return [int(token) for token in text[start : start + most]]


def _allowed(tokens: list[int], guide: Guide) -> list[int]:
    """Return tokens up to the first one that may not come."""
    for place, token in enumerate(tokens):
        if token not in guide.allowed():
            return tokens[:place]
        guide.take(token)
    return tokens


class Clock:
    """A clock that adds the milliseconds of a ``with`` block to a count."""

    def __init__(self, statistics: Statistics, name: str) -> None:
        self._statistics, self._name = statistics, name

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        spent = 1000 * (time.perf_counter() - self._start)
        setattr(self._statistics, self._name, getattr(self._statistics, self._name) + spent)
