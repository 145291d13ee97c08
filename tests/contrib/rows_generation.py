"""Runs of BeamSearch, GreedySearch and WhisperBeamSearch with toy models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rows import Row
from toy_decoders import FEATURES, VOCABULARY

GPT = {"decoder": "gpt", "pad_token_id": 0, "model_type": 0}
T5 = {
    "encoder": "t5 encoder",
    "decoder": "t5 decoder",
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
    "model_type": 1,
}
BART = T5 | {"encoder": "bart encoder", "decoder": "bart decoder"}
WHISPER = {
    "encoder": "whisper encoder",
    "decoder": "whisper decoder",
    "pad_token_id": 0,
    "eos_token_id": 10,
    "decoder_start_token_id": 11,
    "translate_token_id": 12,
    "transcribe_token_id": 13,
    "start_of_lm_token_id": 14,
    "no_speech_token_id": 15,
    "no_timestamps_token_id": 16,
    "beginning_timestamp_token_id": 17,
    "model_type": 2,
}


def one(number: float) -> Any:
    return np.array([number], np.float32 if isinstance(number, float) else np.int32)


def masks(random: np.random.Generator, batch: int) -> list[Any]:
    """``vocab_mask`` and ``prefix_vocab_mask``: no eight of the tokens, no five at first."""
    allowed = np.ones(VOCABULARY, np.int32)
    allowed[random.choice(VOCABULARY, 8, replace=False)] = 0
    first = np.ones((batch, VOCABULARY), np.int32)
    first[:, random.choice(VOCABULARY, 5, replace=False)] = 0
    return [allowed, first]


def beams(random: np.random.Generator, count: int) -> list[Any]:
    """``num_beams`` to ``repetition_penalty``."""
    penalty, repetition = random.choice([0.5, 1.0, 2.0]), random.choice([0.8, 1.0, 1.3])
    return [one(count), one(int(random.integers(1, count + 1))), one(float(penalty)),
            one(float(repetition))]  # fmt: skip


def text(random: np.random.Generator, batch: int) -> Any:
    ids = random.integers(1, VOCABULARY, (batch, 5)).astype(np.int32)
    ids[0, : random.integers(0, 3)] = 0
    return ids


def rows() -> Iterator[Row]:
    random = np.random.default_rng(0)
    for i in range(6):
        ids = text(random, 1 + i % 2)
        end = {"eos_token_id": int(random.integers(1, VOCABULARY)), "no_repeat_ngram_size": i % 3}
        # Batch entries that end late enough: what onnxruntime writes after all have is arbitrary.
        greedy = [ids, one(9), one(9), one(1.2), *masks(random, len(ids))]
        yield Row("GreedySearch", greedy, GPT | end, name=f"{i}")
    for i in range(8):
        # One batch entry: how far others are does not bear on when it is done.
        ids, early = text(random, 1), {"early_stopping": i % 2, "no_repeat_ngram_size": i % 3}
        end = {"eos_token_id": int(random.integers(1, VOCABULARY))}
        search = [ids, one(10), one(i % 4), *beams(random, 1 + i % 4), *masks(random, 1)]
        yield Row("BeamSearch", search, GPT | early | end, outputs=(0, 1), name=f"gpt-{i}")
        for name, model in (("t5", T5), ("bart", BART)):
            search = [text(random, 1), one(7), one(0), *beams(random, 1 + i % 4)]
            yield Row("BeamSearch", search, model | early | end, outputs=(0, 1), name=f"{name}-{i}")
        features = random.normal(size=(1, FEATURES, 4)).astype(np.float32)
        begin = np.array([[11, 13]], np.int32)
        heard = [features, one(10), one(0), *beams(random, 1 + i % 4), None, None, None, begin,
                 one(i % 2), None, None, one(0.7)]  # fmt: skip
        yield Row("WhisperBeamSearch", heard, WHISPER | early, outputs=(0, 1), name=f"{i}")


ROWS = list(rows())
