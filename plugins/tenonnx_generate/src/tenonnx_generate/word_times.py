"""Times of a transcript's words: the places of a sound that the decoder attends to at each token.

As OpenAI's Whisper finds them: the scores of some heads of the decoder's cross attention, which
follow the sound, are a matrix of tokens and places, and dynamic time warping finds the path through
it whose scores are highest.
"""

from __future__ import annotations

import os
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tenonnx_generate.errors import Refused
from tenonnx_generate.files import CONFIG_LIMIT, parse_object, read_text
from tenonnx_generate.suppression import GENERATION_CONFIG_FILE

NDArray = np.ndarray[Any, np.dtype[Any]]

# Places of the median that smooths the weights of a head: OpenAI's, 0.14 seconds.
MEDIAN_PLACES = 7

# Languages without blanks between words: each character is one, as OpenAI's.
WITHOUT_BLANKS = {"ja", "lo", "my", "th", "yue", "zh"}

# Marks that belong to the word after them, or before.
OPENING, CLOSING = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"

# Decoded for bytes that are no whole character.
INCOMPLETE = "\ufffd"


@dataclass(frozen=True)
class Word:
    """A word, with the blank before it, and its time in seconds."""

    text: str
    start: float
    end: float


def alignment_heads(folder: str, layers: int, heads: int) -> list[tuple[int, int]]:
    """Return the layers and heads that follow the sound.

    They stand in ``generation_config.json`` as transformers writes it. Without them, all heads of
    the later half of the layers count, as OpenAI's.

    Raises:
        Refused: One is none of the decoder's.
    """
    path = os.path.join(folder, GENERATION_CONFIG_FILE)
    told = parse_object(read_text(path, CONFIG_LIMIT), path) if os.path.isfile(path) else {}
    listed = told.get("alignment_heads")
    if not listed:
        return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]
    bounds = (layers, heads)
    for each in listed if isinstance(listed, list) else [listed]:
        is_pair = isinstance(each, list) and len(each) == len(bounds)
        if not is_pair or not all(
            isinstance(n, int) and 0 <= n < most for n, most in zip(each, bounds, strict=True)
        ):
            raise Refused(
                f"alignment_heads in {GENERATION_CONFIG_FILE} has {each!r:.60}; expected a layer "
                f"below {layers} and a head below {heads}"
            )
    return [(layer, head) for layer, head in listed]


def token_places(scores: NDArray, first: int, count: int) -> NDArray:
    """Return the place where each token begins, and where the last one ends.

    Args:
        scores: Of each head, token and place [heads, tokens, places], before softmax. A token's
            row is that of the step that chooses the next one.
        first: The first token whose place counts.
        count: How many tokens have one.
    """
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    deviation = np.maximum(weights.std(axis=-2, keepdims=True), np.finfo(np.float32).tiny)
    weights = (weights - weights.mean(axis=-2, keepdims=True)) / deviation
    smooth = np.mean([_smoothed(head) for head in weights], axis=0)
    tokens, places = warped(-smooth[first - 1 : first + count])
    begins = np.diff(tokens, prepend=-1) > 0
    found: NDArray = places[begins]
    return found


def warped(costs: NDArray) -> tuple[NDArray, NDArray]:
    """Return the rows and columns of the cheapest path from corner to corner of a matrix."""
    rows, columns = costs.shape
    totals = np.full((rows + 1, columns + 1), np.inf)
    totals[0, 0] = 0
    steps = np.full((rows + 1, columns + 1), 2, np.int8)  # 0: both, 1: a row, 2: a column
    steps[:, 0] = 1
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        before = np.stack([totals[i - 1, j - 1], totals[i - 1, j], totals[i, j - 1]])
        step = np.full(len(i), 2, np.int8)
        step[(before[0] < before[1]) & (before[0] < before[2])] = 0
        step[(before[1] < before[0]) & (before[1] < before[2])] = 1
        totals[i, j] = costs[i - 1, j - 1] + before[step, np.arange(len(i))]
        steps[i, j] = step
    path, i, j = list[tuple[int, int]](), rows, columns
    while i > 0 and j > 0:
        path.append((i - 1, j - 1))
        step_back = steps[i, j]
        i, j = i - int(step_back != 2), j - int(step_back != 1)
    # What is left is in the first row or column.
    path += [(k, 0) for k in range(i - 1, -1, -1)] + [(0, k) for k in range(j - 1, -1, -1)]
    found = np.array(path[::-1])
    return found[:, 0], found[:, 1]


def words_of(
    tokens: Sequence[int], decode: Callable[[Sequence[int]], str], language: str
) -> list[tuple[str, int]]:
    """Return the words of a text, and how many tokens each has.

    Args:
        tokens: The text's.
        decode: Returns the text of tokens.
        language: Such as ``en``; decides what a word is.
    """
    whole = decode(tokens)
    units, begun = list[tuple[str, int]](), list[int]()
    for token in tokens:
        begun.append(token)
        text = decode(begun)
        place = sum(len(each) for each, _ in units)
        # A character that the text itself has so is complete.
        if INCOMPLETE not in text or whole[place : place + len(text)] == text:
            units.append((text, len(begun)))
            begun = []
    if begun:
        units.append((decode(begun), len(begun)))
    if language in WITHOUT_BLANKS:
        return units
    words: list[tuple[str, int]] = []
    for text, count in units:
        if words and not text.startswith(" ") and text.strip() not in string.punctuation:
            words[-1] = (words[-1][0] + text, words[-1][1] + count)
        else:
            words.append((text, count))
    return words


def timed(words: Sequence[tuple[str, int]], places: NDArray, second: float) -> list[Word]:
    """Return words with their times; marks belong to the word that they stand at.

    Args:
        words: Each with the number of its tokens.
        places: The place where each token begins, and where the last one ends.
        second: Seconds of a place.
    """
    ends = np.cumsum([0, *(count for _, count in words)])
    made: list[Word] = []
    opened: Word | None = None
    for (text, _), first, last in zip(words, ends, ends[1:], strict=False):
        word = Word(text, float(places[first] * second), float(places[last] * second))
        mark = text.strip()
        if opened is not None:
            word = replace(word, text=opened.text + word.text.lstrip(), start=opened.start)
            opened = None
        elif made and mark and mark in CLOSING and not text.startswith(" "):
            made[-1] = replace(made[-1], text=made[-1].text + text)
            continue
        if mark and mark in OPENING and text.startswith(" "):
            opened = word
            continue
        if mark:
            made.append(word)
    return [*made, opened] if opened is not None else made


def _smoothed(weights: NDArray) -> NDArray:
    """Return the median of neighboring places."""
    half = MEDIAN_PLACES // 2
    if weights.shape[-1] <= half:
        return weights
    padded = np.pad(weights, ((0, 0), (half, half)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_PLACES, axis=-1)
    found: NDArray = np.median(windows, axis=-1)
    return found
