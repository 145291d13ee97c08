"""A sequence that a model continues by checking tokens that were drafted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_generate.drafting import Clock, Drafter, ModelDrafter, PatternDrafter, Proposal
from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.generator import Generator
from tenonnx_generate.model import Model
from tenonnx_generate.options import GeneratorParams
from tenonnx_generate.speculation import Statistics, Width

if TYPE_CHECKING:
    from tenonnx_generate.adapters import Adapters

NDArray = np.ndarray[Any, np.dtype[Any]]


class Round:
    """A run of the model on the last token of a sequence and those that were drafted after it.

    Args:
        sequence: The sequence.
        proposal: What was drafted.
        logits: Those that follow the sequence, and each drafted token.

    Attributes:
        text: The sequence with the drafted tokens: the caches are of these.
        accepted: How many of them became part of the sequence.
    """

    def __init__(self, sequence: NDArray, proposal: Proposal, logits: NDArray) -> None:
        self.proposal, self.logits, self.accepted = proposal, logits, 0
        self.text = np.append(sequence, proposal.tokens)
        self._first = len(sequence)

    def place(self, sequence: NDArray) -> int | None:
        """Return how many drafted tokens a sequence has; nothing if it is another one."""
        count = len(sequence)
        if not self._first <= count <= len(self.text) or self.common(sequence) < count:
            return None
        return count - self._first

    def common(self, sequence: NDArray) -> int:
        """Return how many tokens a sequence begins with as this one does."""
        size = min(len(sequence), len(self.text))
        differ = self.text[:size] != sequence[:size]
        return int(differ.argmax()) if differ.any() else size


class DraftedGenerator(Generator):
    """Continues a sequence by rounds: what ``Generator`` makes where tokens are drafted.

    A round drafts some tokens, and one run of the model tells the logits after each of them. Then
    tokens are chosen one by one, as ever, by these logits: as long as they are those that were
    drafted, no run is needed. The caches forget what was not chosen. The likeliest tokens are thus
    the model's own. Where tokens are drawn, one that was drafted with the chance ``q`` and has the
    chance ``p`` is accepted with the probability ``min(1, p / q)``; if it is not, one is drawn by
    ``max(0, p - q)``: together the model's own distribution (Leviathan et al., 2023, arXiv
    2211.17192).

    Raises:
        Refused: There are several sequences, or beams; or a draft model and patterns.
        Unsupported: The model has an encoder.
    """

    def __init__(self, model: Model, params: GeneratorParams) -> None:
        options, speculative = params.get_search_options(), params.get_speculative_options()
        for name in ("batch_size", "num_beams", "num_return_sequences"):
            if options[name] != 1:
                raise Refused(
                    f"{name} is {options[name]}, and tokens are drafted for one sequence",
                    hint="set_draft_model(None) and ngram_size=0 draft none",
                )
        if model.encoder is not None or model.vision is not None:
            raise Unsupported(
                f"{model.type} has an encoder, and tokens are drafted for decoders alone",
                hint="set_draft_model(None) and ngram_size=0 draft none",
            )
        draft, size = params.draft_model, speculative["ngram_size"]
        if draft is not None and size:
            raise Refused(
                f"there are a draft model and ngram_size {size}: one of them drafts",
                hint="set_draft_model(None), or ngram_size=0",
            )
        super().__init__(model, params)
        self._statistics = Statistics()
        self._drafter: Drafter = (
            PatternDrafter(size, chained=speculative["ngram_chained_lookup"])
            if draft is None
            else ModelDrafter(draft, options, tuple(self._ends), self._limit, self._statistics)
        )
        self._width = Width(speculative)
        self._round: Round | None = None
        self._given = False

    def get_speculative_stats(self) -> dict[str, Any]:
        """Return what was drafted and accepted so far."""
        self._statistics.effective_k = self._width.value
        return self._statistics.report()

    def rewind_to(self, new_length: int) -> None:
        """Forget all but the first tokens, and what was drafted: another text draws anew."""
        super().rewind_to(new_length)
        if self._round is not None:
            self._end_round(self._round, self._sequence(0))

    def set_active_adapter(self, adapters: Adapters, adapter_name: str) -> None:
        """Have the model run with an adapter; the draft model runs without."""
        super().set_active_adapter(adapters, adapter_name)
        self._round = None

    def set_logits(self, new_logits: Any) -> None:
        """Set the logits that the next token is chosen by."""
        super().set_logits(new_logits)
        self._given = True

    def _choose(self, row: int, logits: NDArray) -> int:
        search, sequence, counts = self._searches[row], self._sequence(row), self._statistics
        current, given = self._round, self._given
        place = None if current is None or given else current.place(sequence)
        self._given = False
        if current is None or place is None:
            counts.standard_fallback_steps += 1
            return search.choose(logits, sequence)
        tokens, drawn = current.proposal.tokens, current.proposal.drawn
        if place == len(tokens):
            counts.bonus_tokens += 1
            return search.choose(logits, sequence)
        drafted = tokens[place]
        by = drawn[place] if drawn else None
        token = search.choose_drafted(logits, sequence, drafted, by)
        counts.draft_tokens_evaluated += 1
        if token == drafted:
            counts.draft_tokens_accepted += 1
            current.accepted = max(current.accepted, place + 1)
        else:
            counts.correction_tokens += 1
        return token

    def _computed(self) -> NDArray:
        """Return the logits [1, vocabulary] that follow the sequence."""
        if self._logits is None and self._counts[0]:
            sequence = self._sequence(0)
            place = None if self._round is None else self._round.place(sequence)
            if self._round is not None and place is None:
                self._end_round(self._round, sequence)
            if self._round is None:
                self._begin_round(sequence)
                place = 0
            if self._round is not None and place is not None:
                self._logits = self._round.logits[place : place + 1]
            else:
                self._statistics.target_forward_passes += 1
        return super()._computed()

    def _end_round(self, ended: Round, sequence: NDArray) -> None:
        """Have the caches forget what was drafted and did not come."""
        self._width.record(len(ended.proposal.tokens), ended.accepted)
        # The caches go back to what was accepted. They always lack the last token, which the next
        # run takes.
        kept = min(self._decoder.lengths[0], ended.common(sequence), max(len(sequence) - 1, 0))
        self._decoder.lengths[0], self._round = kept, None

    def _begin_round(self, sequence: NDArray) -> None:
        """Draft and check, if only the last token of the sequence is to be run."""
        count = len(sequence)
        # One less than the limit allows: a round adds one more token than it accepts drafts.
        most = min(self._width.value, self._limit - count - 1)
        new = count - self._decoder.lengths[0]
        if self._stopped(0) or new != 1 or most < 1 or self._width.rests():
            return
        with Clock(self._statistics, "total_draft_ms"):
            proposal = self._drafter.propose(sequence, most, self._searches[0].guide)
        if not proposal.tokens:
            return
        run = np.append(sequence[-1:], proposal.tokens)[None]
        with Clock(self._statistics, "total_target_ms"):
            logits = self._decoder.run(0, run, {0: self._adapter}, every=True)
        self._statistics.rounds += 1
        self._statistics.target_forward_passes += 1
        self._statistics.draft_tokens_proposed += len(proposal.tokens)
        self._round = Round(sequence, proposal, logits[0])
