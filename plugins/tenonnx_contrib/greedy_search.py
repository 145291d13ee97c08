"""GreedySearch and Sampling: one token after another, the likeliest or a drawn one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.sampling import generator
from tenonnx_contrib.generation_scores import Rules, keep_nucleus
from tenonnx_contrib.generation_state import Decoding, number, opened

table = OperatorTable("com.microsoft")
op = table.op

# From scores `[rows, vocabulary]` to tokens `[rows]`.
Choose = Callable[[Array], Array]


def write(model: Decoding, sequences: Array, longest: int, rules: Rules, choose: Choose) -> Array:
    """Return ``[batch, longest]``: the sequences, with padding from their end token on."""
    rows, begun = sequences.shape
    written = np.full((rows, max(longest, begun)), rules.pad, np.int32)
    written[:, :begun] = sequences
    ended = np.zeros(rows, bool)
    logits = model.start(1)
    for length in range(begun, longest):
        tokens = choose(rules.apply(rules.cut(logits), written[:, :length], length == begun))
        ended |= tokens == rules.end
        written[:, length] = np.where(ended, rules.pad, tokens)
        if ended.all() or length + 1 == longest:
            break
        logits = model.step(written[:, : length + 1], np.arange(rows))
    return written[:, :longest]


@op(
    "GreedySearch",
    like=[opened],
    host="all",
    shapes=(
        "input_ids: B ...; max_length min_length repetition_penalty: | 1; vocab_mask: V; "
        "prefix_vocab_mask: B V"
    ),
)
def greedy_search(
    _: Namespace,
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    **attributes: Any,
) -> Array:
    allowed = vocab_mask, prefix_vocab_mask
    model, begin, rules = opened(
        input_ids, attention_mask, min_length, repetition_penalty, allowed, **attributes
    )
    return write(model, begin, int(number(max_length, 0)), rules, likeliest)


def likeliest(scores: Array) -> Array:
    """Return the token of the highest score in each row."""
    return scores.argmax(axis=-1)


@op("Sampling", like=[opened], host="all", multiple=True)
def sampling(
    xp: Namespace,
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    presence_mask: Array | None = None,
    seed: Array | None = None,
    *,
    temperature: float = 1.0,
    top_p: float = 0.0,
    min_tokens_to_keep: int = 0,
    filter_value: float = -1e20,
    presence_penalty: float = 0.0,
    custom: int = 0,  # noqa: ARG001 - another way to the same filter
    **attributes: Any,
) -> tuple[Array, ...]:
    """The second output is what the last token was drawn from."""
    allowed = vocab_mask, prefix_vocab_mask
    model, begin, rules = opened(
        input_ids, attention_mask, min_length, repetition_penalty, allowed, **attributes
    )
    rules = replace(
        rules, temperature=temperature, present=presence_mask, presence=presence_penalty
    )
    random = generator(xp, None if seed is None else number(seed, 0))
    filtered = np.empty((len(input_ids), 0), np.float32)

    def draw(scores: Array) -> Array:
        nonlocal filtered
        filtered = keep_nucleus(scores, top_p, min_tokens_to_keep, filter_value)
        # The largest of independent Gumbel variables with these locations is a draw from the
        # softmax (Gumbel 1954).
        return (filtered + random.gumbel(size=filtered.shape)).argmax(axis=-1)

    written = write(model, begin, int(number(max_length, 0)), rules, draw)
    return written, filtered
