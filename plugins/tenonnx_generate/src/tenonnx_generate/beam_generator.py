"""Sequences that a model continues by beams."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tenonnx_generate.beams import Beams
from tenonnx_generate.errors import Refused
from tenonnx_generate.generator import Generator
from tenonnx_generate.model import Model
from tenonnx_generate.options import MOST_ROWS, GeneratorParams

NDArray = np.ndarray[Any, np.dtype[Any]]


class Group:
    """The beams of one sequence of a batch, and their rows of the caches.

    Args:
        rows: The group's rows; the first one gets the prompt.
        beams: The search.

    Attributes:
        going: The row of each beam that goes on, the likeliest first.
        begun: There are beams, and not the prompt alone.
    """

    def __init__(self, rows: list[int], beams: Beams) -> None:
        self.rows, self.beams = rows, beams
        self.going = rows[:1]
        self.begun = False


class BeamGenerator(Generator):
    """Continues each sequence of a batch by ``num_beams`` beams: what ``Generator`` makes then.

    A beam is a row of the caches, in any order. Of beams that continue the same one, the first
    keeps its row; each other gets a row that no beam has any more, and what differs there: nearly
    always the last few tokens, as beams part late. Nothing else is moved. Prompts are run once.

    Tokens, logits and probabilities are [batch_size * num_beams], the likeliest beam of each
    sequence first. ``get_sequence`` has ``num_return_sequences`` texts for each, the best first.

    Raises:
        Refused: ``num_return_sequences`` is more than ``num_beams``, there are too many rows, or
            tokens would be drawn.
    """

    streams = False

    def __init__(self, model: Model, params: GeneratorParams) -> None:
        self._options = options = params.get_search_options()
        _check(options)
        super().__init__(model, params)
        self._count, self._returned = options["num_beams"], options["num_return_sequences"]
        # The first beams of all sequences lead, so that prompts are the first rows.
        self._groups = [
            Group(list(range(first, len(self._counts), self._batch)), self._beams())
            for first in range(self._batch)
        ]

    def append_tokens(self, tokens: Any) -> None:
        """Append tokens to the prompts, as ``Generator.append_tokens``.

        Raises:
            Refused: Beams have parted, or the tokens cannot be.
        """
        if any(group.begun for group in self._groups):
            raise Refused(
                "beams have parted: there is no one sequence to append to",
                hint="rewind_to the prompt, or make another generator",
            )
        super().append_tokens(tokens)

    def generate_next_token(self) -> None:
        """Have the beams of each sequence that is not done go on by a token.

        Raises:
            Refused: All are done, or there is nothing to continue.
        """
        self._check_goes_on()
        logits = self._computed()
        self._chosen_by = {}
        self._next[:] = self._about.pad
        for number, group in enumerate(self._groups):
            if not self._over(group):
                self._advance(number * self._count, group, logits)
        self._logits = None

    def is_done(self) -> bool:
        """Return whether every sequence has the texts that it may have."""
        return all(map(self._over, self._groups))

    def get_sequence(self, index: int) -> NDArray:
        """Return the text at a place: of each sequence ``num_return_sequences``, the best first.

        Before ``is_done``, those that would be the best if the search ended here.

        Raises:
            Refused: There is no such text.
        """
        most = self._batch * self._returned
        if not 0 <= operator.index(index) < most:
            raise Refused(f"there is no sequence {index}: there are {most}")
        group = self._groups[index // self._returned]
        found = group.beams.best([self._sequence(row) for row in group.going])
        if index % self._returned >= len(found):
            raise Refused(f"there is no sequence {index}: the search found {len(found)}")
        text: NDArray = found[index % self._returned].copy()
        return text

    def token_count(self) -> int:
        """Return how many tokens the longest sequence has."""
        return max(self._counts[group.going[0]] for group in self._groups)

    def rewind_to(self, new_length: int) -> None:
        """Forget all but the first tokens of the prompts, and all beams.

        Raises:
            Refused: The prompts do not have as many.
        """
        least = min(self._prompts[: self._batch])
        if not 0 <= operator.index(new_length) <= least:
            raise Refused(
                f"{new_length} is no length to go back to: the beams part after {least} tokens"
            )
        for row, group in enumerate(self._groups):
            group.beams, group.going, group.begun = self._beams(), [row], False
            self._shorten(row, new_length)
        self._logits = None

    def get_logits(self) -> NDArray:
        """Return the logits of what comes next, [batch_size * num_beams, 1, vocabulary]."""
        return self._computed()[self._ranked()][:, None].astype(np.float32)

    def set_logits(self, new_logits: Any) -> None:
        """Set the logits that the beams go on by, in the order of ``get_logits``.

        Raises:
            Refused: They are not [batch_size * num_beams, vocabulary].
        """
        super().set_logits(new_logits)
        given, ranked = self._logits, self._ranked()
        assert given is not None
        self._logits = np.zeros_like(given)
        self._logits[ranked[::-1]] = given[::-1]  # of one row, the likeliest beam's come last

    def _beams(self) -> Beams:
        return Beams(self._options, self._ends)

    def _over(self, group: Group) -> bool:
        return group.beams.done or self._counts[group.going[0]] >= self._limit

    def _ranked(self) -> list[int]:
        """Return the row of each beam; where a sequence has fewer, its likeliest one's."""
        return [
            group.going[rank] if rank < len(group.going) else group.going[0]
            for group in self._groups
            for rank in range(self._count)
        ]

    def _advance(self, first: int, group: Group, logits: NDArray) -> None:
        """Have a sequence's beams go on, which have the places from ``first`` on."""
        had = group.going
        sequences = [self._sequence(row) for row in had]
        scores = [
            self._searches[row].scores(logits[row], sequence)
            for row, sequence in zip(had, sequences, strict=True)
        ]
        found = group.beams.advance(np.stack(scores), sequences)
        group.begun = True
        for place, (beam, token) in enumerate(found, first):
            self._next[place], self._chosen_by[place] = token, logits[had[beam]]
        if group.beams.done:
            return
        # Rows are copied before any token is added: children of one beam differ in that alone.
        group.going = self._placed(group, [had[beam] for beam, _ in found])
        for row, (_, token) in zip(group.going, found, strict=True):
            self._tokens[row, self._counts[row]] = token
            self._counts[row] += 1
            if (guide := self._searches[row].guide) is not None:
                guide.take(token)

    def _placed(self, group: Group, parents: list[int]) -> list[int]:
        """Return a row for each beam, given the rows of those that they continue."""
        free = [row for row in group.rows if row not in parents]
        placed: list[int] = []
        for parent in parents:
            row = parent
            if parent in placed:
                # The row that has most of the parent's tokens already needs the shortest copy.
                row = max(free, key=lambda each: self._common(each, parent))
                free.remove(row)
                self._fork(parent, row)
            placed.append(row)
        return placed

    def _fork(self, parent: int, row: int) -> None:
        """Make a row what another one is: caches, tokens and guide."""
        same, count = self._common(row, parent), self._counts[parent]
        self._decoder.copy(parent, row, self._decoder.lengths[parent], same)
        self._tokens[row, same:count] = self._tokens[parent, same:count]
        self._counts[row] = count
        if (guide := self._searches[parent].guide) is not None:
            self._searches[row].guide = guide.copy()

    def _common(self, one: int, other: int) -> int:
        """Return how many tokens that two rows have caches of are the same."""
        lengths = self._decoder.lengths
        size = min(lengths[one], lengths[other])
        differ = self._tokens[one, :size] != self._tokens[other, :size]
        return int(differ.argmax()) if differ.any() else size

    def _computed(self) -> NDArray:
        """Return the logits [rows, vocabulary] that follow the beams that go on."""
        if self._logits is None:
            groups = [group for group in self._groups if not self._over(group)] or self._groups
            rows = sorted(row for group in groups for row in group.going)
            self._check_begun(self._counts[row] for row in rows)
            new = max(self._counts[row] - self._decoder.lengths[row] for row in rows)
            if self._decoder.in_place and new <= 1 < len(rows):
                found = self._run_together(rows)
                rows = list(range(rows[0], rows[-1] + 1))
            else:
                found = np.concatenate([self._one_row(row) for row in rows])
            if len(rows) < len(self._counts):
                some = found
                found = np.zeros((len(self._counts), self._about.vocabulary), np.float32)
                found[rows] = some
            self._logits = found
        return self._logits

    def _run_together(self, rows: list[int]) -> NDArray:
        """Run a token of each of some rows; those between them keep what they have."""
        first, last = rows[0], rows[-1]
        between = sorted(set(range(first, last)) - set(rows))
        lengths = self._decoder.lengths
        # A run writes a token into each row, so a full row must seem to have one less.
        kept = {row: min(lengths[row], self._limit - 1) for row in between}
        tokens = np.zeros((last + 1 - first, 1), np.int32)
        for row in rows:
            lengths[row] = self._counts[row] - 1
            tokens[row - first] = self._tokens[row, lengths[row]]
        for row, length in kept.items():
            lengths[row] = length
        adapters = dict.fromkeys(rows, self._adapter)
        found = self._decoder.run(first, tokens, adapters)
        for row, length in kept.items():
            lengths[row] = length
        return found


def _check(options: dict[str, Any]) -> None:
    beams, returned = options["num_beams"], options["num_return_sequences"]
    if returned > beams:
        raise Refused(
            f"num_return_sequences is {returned}; expected at most num_beams, {beams}",
            hint="draw several texts with do_sample, batch_size and random_seed",
        )
    if beams * options["batch_size"] > MOST_ROWS:
        raise Refused(
            f"{options['batch_size']} sequences of {beams} beams are more than {MOST_ROWS} rows"
        )
    if options["do_sample"] and options["top_k"] != 1 and options["temperature"] > 0:
        raise Refused(
            "beams take the likeliest tokens, and do_sample draws them",
            hint="set do_sample=False, or num_beams=1",
        )
