"""GreedySearch and Sampling: one token after another, the likeliest or a drawn one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenonnx import Array, Body, Namespace, OperatorTable
from tenonnx_array.sampling import generator
from tenonnx_contrib.generation_scores import Rules, keep_nucleus
from tenonnx_contrib.generation_state import DecoderOnly, Decoding, EncoderDecoder

table = OperatorTable("com.microsoft")
op = table.op

Choose = Callable[[Array], Array]
"""From scores ``[rows, vocabulary]`` to tokens ``[rows]``."""


def number(value: Array | None, default: float) -> float:
    """Returns a scalar that is given as a tensor of one element, if it is."""
    return default if value is None else np.asarray(value).reshape(-1)[0].item()


def open_model(
    ids: Array,
    mask: Array | None,
    decoder: Body,
    encoder: Body | None,
    first: Body | None,
    pad: int,
    begin: Array,
) -> Decoding:
    """Returns the model that the graphs make, before its first token."""
    if encoder is None:
        return DecoderOnly(decoder, first, ids, mask, pad)
    return EncoderDecoder(encoder, decoder, ids, mask, pad, begin)


def first_tokens(ids: Array, begin: Array | None, start: int, encoder: Body | None) -> Array:
    """Returns what every sequence begins with, ``[batch, length]``: the prompt, or start tokens.

    Raises:
        ValueError: The model has an encoder, and nothing says how sequences begin.
    """
    if encoder is None:
        return ids.astype(np.int32)
    if begin is not None:
        return begin.astype(np.int32)
    if start < 0:
        raise ValueError("expected decoder_start_token_id or decoder_input_ids with an encoder")
    return np.full((len(ids), 1), start, np.int32)


def write(
    model: Decoding, sequences: Array, longest: int, vocabulary: int, rules: Rules, pad: int,
    choose: Choose,
) -> Array:  # fmt: skip
    """Returns ``[batch, longest]``: the sequences, with padding from their end token on."""
    rows, begun = sequences.shape
    written = np.full((rows, max(longest, begun)), pad, np.int32)
    written[:, :begun] = sequences
    ended = np.zeros(rows, bool)
    logits = model.start(1)
    for length in range(begun, longest):
        scores = logits[:, :vocabulary] if vocabulary > 0 else logits
        tokens = choose(rules.apply(scores, written[:, :length], length == begun))
        ended |= tokens == rules.end
        written[:, length] = np.where(ended, pad, tokens)
        if ended.all() or length + 1 == longest:
            break
        logits = model.step(written[:, : length + 1], np.arange(rows))
    return written[:, :longest]


@op("GreedySearch", host="all")
def greedy_search(
    _: Namespace,
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    *,
    decoder: Body,
    eos_token_id: int,
    pad_token_id: int,
    encoder: Body | None = None,
    init_decoder: Body | None = None,
    decoder_start_token_id: int = -1,
    model_type: int = 0,  # noqa: ARG001 - the graphs show it
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
) -> Array:
    rules = Rules(
        end=eos_token_id,
        shortest=int(number(min_length, 0)),
        repetition=number(repetition_penalty, 1.0),
        ngram=no_repeat_ngram_size,
        allowed=vocab_mask,
        allowed_first=prefix_vocab_mask,
    )
    begin = first_tokens(input_ids, None, decoder_start_token_id, encoder)
    model = open_model(
        input_ids, attention_mask, decoder, encoder, init_decoder, pad_token_id, begin
    )
    longest = int(number(max_length, 0))
    return write(model, begin, longest, vocab_size, rules, pad_token_id, likeliest)


def likeliest(scores: Array) -> Array:
    """Returns the token of the highest score in each row."""
    return scores.argmax(axis=-1)


@op("Sampling", host="all", multiple=True)
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
    decoder: Body,
    eos_token_id: int,
    pad_token_id: int,
    encoder: Body | None = None,
    init_decoder: Body | None = None,
    decoder_start_token_id: int = -1,
    model_type: int = 0,  # noqa: ARG001 - the graphs show it
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
    temperature: float = 1.0,
    top_p: float = 0.0,
    min_tokens_to_keep: int = 0,
    filter_value: float = -1e20,
    presence_penalty: float = 0.0,
    custom: int = 0,  # noqa: ARG001 - another way to the same filter
) -> tuple[Array, ...]:
    """The second output is what the last token was drawn from."""
    rules = Rules(
        end=eos_token_id,
        shortest=int(number(min_length, 0)),
        repetition=number(repetition_penalty, 1.0),
        ngram=no_repeat_ngram_size,
        temperature=temperature,
        allowed=vocab_mask,
        allowed_first=prefix_vocab_mask,
        present=presence_mask,
        presence=presence_penalty,
    )
    random = generator(xp, None if seed is None else number(seed, 0))
    filtered = np.empty((len(input_ids), 0), np.float32)

    def draw(scores: Array) -> Array:
        nonlocal filtered
        filtered = keep_nucleus(scores, top_p, min_tokens_to_keep, filter_value)
        # The largest of independent Gumbel variables with these locations is a draw from the
        # softmax (Gumbel 1954).
        return (filtered + random.gumbel(size=filtered.shape)).argmax(axis=-1)

    begin = first_tokens(input_ids, None, decoder_start_token_id, encoder)
    model = open_model(
        input_ids, attention_mask, decoder, encoder, init_decoder, pad_token_id, begin
    )
    longest = int(number(max_length, 0))
    written = write(model, begin, longest, vocab_size, rules, pad_token_id, draw)
    return written, filtered
