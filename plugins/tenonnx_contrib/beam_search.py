"""BeamSearch and WhisperBeamSearch: several sequences at once, of which the best are kept."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_contrib.generation_scores import Rules, log_softmax
from tenonnx_contrib.generation_state import Decoding, number, opened

table = OperatorTable("com.microsoft")
op = table.op

# The score of a beam that is as yet a copy of another.
UNLIKELY = np.float32(-1e9)


@dataclass
class Finished:
    """The best sequences of one batch entry that have ended.

    Attributes:
        room: How many are kept.
        penalty: Scores are sums of logarithms over the length to this power.
        early: As many as there is room for are enough, whatever others might come to.
    """

    room: int
    penalty: float
    early: bool
    done: bool = False
    kept: list[tuple[float, int, Array]] = field(default_factory=list)

    def add(self, sequence: Array, total: float) -> None:
        """Offer a sequence with its sum of logarithms."""
        # Between equals the one that came first is dropped first.
        heapq.heappush(
            self.kept, (total / len(sequence) ** self.penalty, -len(self.kept), sequence)
        )
        if len(self.kept) > self.room:
            heapq.heappop(self.kept)

    def settle(self, best: float, length: int) -> None:
        """Note whether a sequence of this length and sum could still be among the best.

        Every batch entry asks its own: onnxruntime 1.31.1 looks at a neighbour's ``best``, so that
        a batch may end earlier or later there than each of its entries would alone.
        """
        if len(self.kept) == self.room:
            self.done = self.early or self.kept[0][0] >= best / length**self.penalty

    def best(self, count: int) -> list[tuple[float, int, Array]]:
        """Return the best, those of the highest scores first."""
        return heapq.nlargest(count, self.kept, key=lambda each: each[:2])


@dataclass
class Search:
    """A beam search that goes on token by token.

    Attributes:
        beams: How many sequences of each batch entry go on at once.
        rules: The rules for the scores of tokens.
        sequences: ``[batch * beams, length]``.
        totals: Sums of logarithms, ``[batch * beams]``.
        finished: One per batch entry.
        history: The scores of every step, when they are asked for.
    """

    beams: int
    rules: Rules
    sequences: Array
    totals: Array
    finished: list[Finished]
    history: list[Array] | None

    def advance(self, scores: Array) -> Array:
        """Add a token to every row; return the rows that they go on from."""
        totals = scores + self.totals[:, None]
        if self.history is not None:
            self.history.append(totals.reshape(len(self.finished), self.beams, totals.shape[1]))
        width = totals.shape[1]
        flat = totals.reshape(len(self.finished), self.beams * width)
        places = np.argsort(-flat, axis=1, kind="stable")[:, : 2 * self.beams]
        best = np.take_along_axis(flat, places, axis=1)
        order = np.empty(len(totals), np.int64)
        tokens = np.empty(len(totals), np.int32)
        for entry, done in enumerate(self.finished):
            rows = slice(entry * self.beams, (entry + 1) * self.beams)
            if done.done:
                order[rows], tokens[rows], self.totals[rows] = 0, self.rules.pad, 0
                continue
            sources, candidates = places[entry] // width, places[entry] % width
            chosen = self._choose(entry, sources + rows.start, candidates, best[entry])
            order[rows] = sources[chosen] + rows.start
            tokens[rows], self.totals[rows] = candidates[chosen], best[entry, chosen]
            done.settle(best[entry, 0], self.sequences.shape[1])
        self.sequences = np.concatenate([self.sequences[order], tokens[:, None]], axis=1)
        return order

    def _choose(self, entry: int, rows: Array, tokens: Array, totals: Array) -> list[int]:
        """Pick the candidates that go on; those that end are offered as finished."""
        chosen: list[int] = []
        for rank, token in enumerate(tokens):
            if token != self.rules.end:
                chosen.append(rank)
            elif rank < self.beams:
                self.finished[entry].add(self.sequences[rows[rank]], float(totals[rank]))
            if len(chosen) == self.beams:
                break
        return chosen

    def run(self, model: Decoding, longest: int) -> None:
        """Go on until every batch entry is done or the sequences are long enough."""
        begun = self.sequences.shape[1]
        logits = model.start(self.beams)
        while self.sequences.shape[1] < longest:
            scores = log_softmax(self.rules.cut(logits))
            first = self.sequences.shape[1] == begun
            order = self.advance(self.rules.apply(scores, self.sequences, first))
            if all(each.done for each in self.finished):
                break
            if self.sequences.shape[1] < longest:
                logits = model.step(self.sequences, order)

    def results(self, count: int, longest: int) -> tuple[Array, Array]:
        """Return the ``count`` best of each batch entry, padded, and their scores."""
        batch = len(self.finished)
        written = np.full((batch, count, longest), self.rules.pad, np.int32)
        scores = np.zeros((batch, count), np.float32)
        for entry, each in enumerate(self.finished):
            if not each.done:
                for row in range(entry * self.beams, (entry + 1) * self.beams):
                    each.add(self.sequences[row], float(self.totals[row]))
            for rank, (score, _, sequence) in enumerate(each.best(count)):
                written[entry, rank, : len(sequence)] = sequence
                scores[entry, rank] = score
        return written, scores


class Limits(NamedTuple):
    """The number of sequences of a beam search, and their lengths, as its operators are told.

    Attributes:
        longest: Tokens of a sequence at most.
        beams: How many sequences of each batch entry go on at once.
        returned: How many of them are returned.
        penalty: Of length, as in ``Finished``; 1 if absent.
        early: As in ``Finished``.
    """

    longest: Array
    beams: Array | None
    returned: Array | None
    penalty: Array | None
    early: int


def search(
    model: Decoding, begin: Array, rules: Rules, limits: Limits, *, history: bool
) -> tuple[Array, ...]:
    """Return sequences, their scores, and with ``history`` those of every token at every step."""
    width, kept = int(number(limits.beams, 1)), int(number(limits.returned, 1))
    most, power = int(number(limits.longest, 0)), float(number(limits.penalty, 1.0))
    if not 0 < kept <= width:
        raise ValueError(f"num_return_sequences is {kept}; expected 1 to num_beams, {width}")
    if most <= begin.shape[1]:
        raise ValueError(
            f"max_length is {most}; expected more than the {begin.shape[1]} tokens at the start"
        )
    totals = np.full((len(begin), width), UNLIKELY)
    totals[:, 0] = 0
    state = Search(
        beams=width,
        rules=rules,
        sequences=np.repeat(begin, width, axis=0),
        totals=totals.reshape(-1),
        finished=[Finished(width, power, bool(limits.early)) for _ in begin],
        history=[] if history else None,
    )
    state.run(model, most)
    results: tuple[Array, ...] = state.results(kept, most)
    if state.history is not None:
        steps = np.stack(state.history)
        results += (np.pad(steps, ((0, most - begin.shape[1] - len(steps)), *[(0, 0)] * 3)),)
    return results


@op(
    "BeamSearch",
    like=[opened],
    host="all",
    multiple=True,
    shapes=(
        "input_ids: B ...; "
        "max_length min_length num_beams num_return_sequences: | 1; "
        "length_penalty repetition_penalty: | 1; "
        "vocab_mask: V; prefix_vocab_mask: B V"
    ),
)
def beam_search(
    _: Namespace,
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    num_beams: Array | None = None,
    num_return_sequences: Array | None = None,
    length_penalty: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    decoder_input_ids: Array | None = None,
    logits_processor: Array | None = None,
    *,
    early_stopping: int = 0,
    _outputs: int = 1,
    **attributes: Any,
) -> tuple[Array, ...]:
    if number(logits_processor, 0):
        raise ValueError("logits_processor is not 0; the processors of Whisper need its operator")
    allowed = vocab_mask, prefix_vocab_mask
    model, begin, rules = opened(
        input_ids,
        attention_mask,
        min_length,
        repetition_penalty,
        allowed,
        decoder_input_ids,
        **attributes,
    )
    limits = Limits(max_length, num_beams, num_return_sequences, length_penalty, early_stopping)
    return search(model, begin, rules, limits, history=_outputs > 2)
