"""WhisperBeamSearch: BeamSearch whose tokens may be timestamps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tenonnx import Array, Body, Namespace, OperatorTable
from tenonnx_contrib.beam_search import Limits, search
from tenonnx_contrib.generation_scores import LOWEST, Rules, log_softmax
from tenonnx_contrib.generation_state import Decoding, number, opened

table = OperatorTable("com.microsoft")
op = table.op

# The first timestamp is at most this many steps, of 20 ms, after the beginning.
LATEST_FIRST = 50

UNCOLLECTED = (
    "the products of the cross attention are not collected; export the model with "
    "decoder_output_cross_qk 0"
)


@dataclass(frozen=True)
class Timestamps(Rules):
    """The rules for a transcript with times (Radford et al. 2022, section 2.3).

    Attributes:
        begin: Id of the first timestamp; those of all others are larger.
        never: Ids that are in no transcript.
        opening: Ids that are only in what a transcript begins with.
    """

    begin: int = 0
    never: tuple[int, ...] = ()
    opening: tuple[int, ...] = ()

    def apply(self, scores: Array, sequences: Array, first: bool) -> Array:
        """Return the scores under these rules too."""
        scores = super().apply(scores, sequences, first)
        scores[:, list(self.never)] = LOWEST
        for row, sequence in zip(scores, sequences, strict=True):
            self._apply_to(row, sequence)
        return scores

    def _apply_to(self, row: Array, sequence: Array) -> None:
        times = sequence >= self.begin
        # The transcript begins with its first timestamp.
        opened = int(times.argmax()) + 1 if times.any() else len(sequence)
        if len(sequence) > opened:
            row[list(self.opening)] = LOWEST
        paired = len(sequence) <= opened or times[-2]
        if times[-1]:
            # A timestamp ends what the one before it began; between two pairs there is no text.
            row[slice(self.begin, None) if paired else slice(None, self.end)] = LOWEST
        if times.any():
            last = sequence[times][-1]
            row[self.begin : last + (0 if times[-1] and not paired else 1)] = LOWEST
        if len(sequence) == opened:
            row[self.begin + LATEST_FIRST + 1 :] = LOWEST
        likely = log_softmax(row)
        if np.logaddexp.reduce(likely[self.begin :]) > likely[: self.begin].max():
            row[: self.begin] = LOWEST


@dataclass
class Listening(Decoding):
    """A model of which the first logits are kept."""

    model: Decoding
    heard: Array = field(default_factory=lambda: np.empty((0, 0)))

    def start(self, beams: int) -> Array:
        """Return the logits of the first token, and keep those of each batch entry."""
        logits = self.model.start(beams)
        self.heard = logits[::beams]
        return logits

    def step(self, sequences: Array, order: Array) -> Array:
        """Return the logits of the next token."""
        return self.model.step(sequences, order)


@op(
    "WhisperBeamSearch",
    like=[opened],
    host="all",
    multiple=True,
    shapes=(
        "input_ids: B ...; "
        "max_length min_length num_beams num_return_sequences: | 1; "
        "length_penalty repetition_penalty: | 1; "
        "vocab_mask: V; prefix_vocab_mask: B V; temperature: | 1"
    ),
)
def whisper_beam_search(
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
    cross_qk_layer_head: Array | None = None,
    extra_decoding_ids: Array | None = None,
    temperature: Array | None = None,
    *,
    encoder: Body,
    beginning_timestamp_token_id: int = -1,
    decoder_output_cross_qk: int = 0,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    model_type: int = 2,  # noqa: ARG001 - the graphs show it
    no_speech_token_id: int = -1,
    no_timestamps_token_id: int = -1,
    start_of_lm_token_id: int = -1,
    transcribe_token_id: int = -1,
    translate_token_id: int = -1,
    _outputs: int = 1,
    **attributes: Any,
) -> tuple[Array | None, ...]:
    if decoder_output_cross_qk or cross_qk_layer_head is not None:
        raise ValueError(UNCOLLECTED)
    allowed = vocab_mask, prefix_vocab_mask
    model, begin, rules = opened(
        input_ids,
        attention_mask,
        min_length,
        repetition_penalty,
        allowed,
        decoder_input_ids,
        extra_decoding_ids,
        encoder=encoder,
        decoder_start_token_id=decoder_start_token_id,
        **attributes,
    )
    rules = replace(rules, temperature=float(number(temperature, 1.0)))
    if number(logits_processor, 0):
        never = no_timestamps_token_id, start_of_lm_token_id
        opening = decoder_start_token_id, translate_token_id, transcribe_token_id
        rules = Timestamps(
            **vars(rules), begin=beginning_timestamp_token_id, never=never, opening=opening
        )
    listening = Listening(model)
    limits = Limits(max_length, num_beams, num_return_sequences, length_penalty, early_stopping)
    results: tuple[Array | None, ...] = search(
        listening, begin, rules, limits, history=_outputs > 2
    )
    if _outputs > 4:
        silence = np.exp(log_softmax(listening.heard)[:, no_speech_token_id])
        results += (None, silence)
    return results
