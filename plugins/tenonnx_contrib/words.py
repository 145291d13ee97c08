"""Operators on words: Tokenizer, WordConvEmbedding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.re2 import Search, compile_search

table = OperatorTable("com.microsoft")
op = table.op

START_OF_TEXT, END_OF_TEXT = "\x02", "\x03"


@op("Tokenizer", host="all")
def tokenizer(
    _: Namespace,
    x: Array,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] = (),
    tokenexp: str = "",
) -> Array:
    """Cut every string into tokens, along a new last axis."""
    if bool(separators) == bool(tokenexp):
        raise ValueError("expected either separators or tokenexp")
    if mincharnum < 1:
        raise ValueError(f"mincharnum is {mincharnum}; expected 1 or more")
    if x.ndim not in (1, 2):
        raise ValueError(f"expected strings of shape [C] or [N, C], found {list(x.shape)}")
    texts = x.ravel().tolist()
    if tokenexp == "." or tuple(separators) == ("",):
        if mincharnum > 1:
            raise ValueError(f"mincharnum is {mincharnum}; expected 1 where characters are tokens")
        rows = [list(text) for text in texts]
    elif tokenexp:
        rows = [*map(compile_search(tokenexp).found, texts)]
        if mincharnum > 1:
            rows = [[word for word in row if len(word) >= mincharnum] for row in rows]
    else:
        patterns = [compile_search(separator) for separator in separators]
        rows = [pieces(patterns, text, mincharnum) for text in texts]
    if not rows:
        return x
    width = max(map(len, rows))
    if mark and width:
        rows = [[START_OF_TEXT, *row, END_OF_TEXT] for row in rows]
        width += 2
    cut: list[str] = []
    for row in rows:
        cut += row
        cut += [pad_value] * (width - len(row))
    return np.fromiter(cut, object, len(cut)).reshape(*x.shape, width)


def pieces(patterns: Sequence[Search], text: str, shortest: int) -> list[str]:
    """Return the pieces between separators; each separator cuts the pieces of the one before."""
    parts = [text]
    for pattern in patterns:
        parts = [piece for part in parts for piece in pattern.between(part)]
    return [part for part in parts if len(part) >= shortest]


@op("WordConvEmbedding", shapes="bias: M; weight: M ...; len(words) > 1")
def word_conv_embedding(
    xp: Namespace,
    words: Array,
    weight: Array,
    bias: Array,
    characters: Array,
    *,
    char_embedding_size: int = 0,
    conv_window_size: int = 0,
    embedding_size: int = 0,
) -> Array:
    """Embed words by a convolution over their characters, tanh, and the maximum.

    Args:
        xp: The array namespace.
        words: Numbers of characters, zero after a word's end, ``[words, length]``.
        weight: ``[filters, 1, window, character size]``.
        bias: ``[filters]``.
        characters: One row per character.
        char_embedding_size: The character size.
        conv_window_size: The window.
        embedding_size: The number of filters.
    """
    filters, _, window, size = weight.shape
    for name, given, found in (
        ("char_embedding_size", char_embedding_size, size),
        ("conv_window_size", conv_window_size, window),
        ("embedding_size", embedding_size, filters),
    ):
        if given and given != found:
            raise ValueError(f"{name} is {given}, the weight has {found}")
    lengths = (words > 0).sum(axis=-1, keepdims=True)
    embedded = characters[words]
    places = xp.arange(words.shape[-1] - window + 1)
    windows = xp.stack([embedded[..., p : p + window, :] for p in range(len(places))], axis=-3)
    flat = windows.reshape(*windows.shape[:-2], window * size)
    response = xp.tanh(flat @ weight.reshape(filters, window * size).T + bias)
    # A window counts when it lies in the word; the first does when the word is shorter.
    counts = (places < xp.maximum(lengths - window + 1, 1))[..., None]
    best = xp.where(counts, response, -xp.inf).max(axis=-2)
    return xp.where(lengths > 0, best, 0).astype(weight.dtype)
