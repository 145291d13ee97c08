"""Times of words: dynamic time warping, words of tokens, and whole transcripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")

from encoders import (
    BANDS,
    HEADS,
    LAYERS,
    cross_scores,
    encoded,
    sweep,
    write_encoded,
    write_wave,
)
from folders import EOS
from tenonnx_generate import Audios, Model, Tokenizer
from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.mel import SAMPLE_RATE, Mel, features
from tenonnx_generate.transcribing import Transcriber
from tenonnx_generate.word_times import (
    Word,
    alignment_heads,
    timed,
    token_places,
    warped,
    words_of,
)

NDArray = np.ndarray[Any, np.dtype[Any]]


def slowly_warped(costs: NDArray) -> float:
    """Return the cost of the cheapest path, cell by cell."""
    totals = np.full(np.add(costs.shape, 1), np.inf)
    totals[0, 0] = 0
    for i, j in np.ndindex(costs.shape):
        least = min(totals[i, j], totals[i, j + 1], totals[i + 1, j])
        totals[i + 1, j + 1] = costs[i, j] + least
    return float(totals[-1, -1])


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (5, 8), (20, 60), (60, 20)])
def test_paths_are_the_cheapest(shape: tuple[int, int]) -> None:
    costs = np.random.default_rng(0).standard_normal(shape)
    rows, columns = warped(costs)
    assert (rows[0], columns[0], rows[-1], columns[-1]) == (0, 0, shape[0] - 1, shape[1] - 1)
    steps = {(int(i), int(j)) for i, j in zip(np.diff(rows), np.diff(columns), strict=True)}
    assert steps <= {(1, 1), (1, 0), (0, 1)}
    np.testing.assert_allclose(costs[rows, columns].sum(), slowly_warped(costs))


def test_tokens_begin_where_heads_look() -> None:
    """Two heads follow the sound, by rows that choose the next token; a third looks anywhere."""
    begins = [0, 10, 25, 60]
    scores = np.random.default_rng(1).standard_normal((3, 8, 80))
    # Two tokens come before the text of three; its last row chooses the end.
    for row, (first, last) in enumerate(zip(begins, [*begins[1:], 80], strict=True), 1):
        scores[:2, row, first:last] += 8
    places = token_places(scores.astype(np.float32), 2, 3)
    np.testing.assert_allclose(places, begins, atol=2)


LETTERS = " The cat, naïve (or) it’s.".encode()


def decode(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def test_words_are_parted_at_blanks_and_marks() -> None:
    found = words_of([*LETTERS], decode, "en")
    assert "".join(text for text, _ in found) == LETTERS.decode()
    assert sum(count for _, count in found) == len(LETTERS)
    # Each byte is a token here; those of one character stay together.
    assert all("\ufffd" not in text for text, _ in found)
    tokens = [[*b" The"], [*b" cat"], [*b","], [*b" or"]]
    parts = words_of(range(4), lambda some: "".join(decode(tokens[n]) for n in some), "en")
    assert parts == [(" The", 1), (" cat", 1), (",", 1), (" or", 1)]


def test_characters_are_words_where_there_are_no_blanks() -> None:
    assert words_of([*"你好".encode()], decode, "zh") == [("你", 3), ("好", 3)]
    assert words_of([*"é".encode()[:1]], decode, "en") == [("\ufffd", 1)]


def test_marks_belong_to_words() -> None:
    words = [(" The", 1), (" cat", 2), (",", 1), (" (", 1), ("or", 1), (")", 1), ("", 1)]
    found = timed(words, np.arange(9) * 10, 0.5)
    assert found == [Word(" The", 0, 5), Word(" cat,", 5, 15), Word(" (or)", 20, 30)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoded(tmp_path_factory.mktemp("speech") / "folder", aligned=True)


@pytest.mark.parametrize("named", [False, True])
def test_a_transcript_has_times(folder: Path, tmp_path: Path, named: bool) -> None:
    """As the formula on scores that numpy computed; heads that the folder names count alone."""
    told = folder / "generation_config.json"
    told.write_text(json.dumps({"alignment_heads": [[0, 1], [1, 0]]} if named else {}))
    heads = [(0, 1), (1, 0)] if named else [(1, head) for head in range(HEADS)]
    assert alignment_heads(str(folder), LAYERS, HEADS) == heads
    path = write_wave(tmp_path / "a.wav", sweep(1.6))
    model = Model(folder)
    made, tokenizer = Transcriber(model, {}, language="en"), Tokenizer(model)
    (clip,) = Audios.open(path)
    for number, places in enumerate((50, 30)):
        text = "".join(made.piece(clip, number, 30))
        tokens = made._generator.get_sequence(0).tolist()
        words = made.words(clip, number)
        assert "".join("".join(word.text for word in words).split()) == "".join(text.split())
        samples = clip.samples(SAMPLE_RATE, number * SAMPLE_RATE, SAMPLE_RATE)
        states = encoded(features(samples, Mel(bands=BANDS, seconds=1)))
        scores = cross_scores(states, [*tokens, EOS])
        chosen = np.stack([scores[layer, head] for layer, head in heads])[..., :places]
        first = 4  # after the tokens that ask for a transcript
        begins = token_places(chosen, first, len(tokens) - first)
        expected = timed(words_of(tokens[first:], tokenizer.decode, "en"), begins, 1 / 50)
        for word, other in zip(words, expected, strict=True):
            assert word.text == other.text
            np.testing.assert_allclose(
                [word.start - number, word.end - number], [other.start, other.end], atol=1e-9
            )
        times = [time for word in words for time in (word.start, word.end)]
        assert times == sorted(times)
        assert number <= times[0] <= times[-1] <= min(number + 1, 1.6)


def test_decoders_without_scores_are_refused(tmp_path: Path) -> None:
    made = Transcriber(Model(write_encoded(tmp_path / "folder")), {}, language="en")
    with pytest.raises(Unsupported, match="'output_cross_qk_1', and the decoder has no such"):
        made.check_words()


@pytest.mark.parametrize("heads", [5, [5], [[0]], [[0, 9]], [[9, 0]], [[0, -1]], [["a", 0]]])
def test_heads_that_are_none(tmp_path: Path, heads: Any) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"alignment_heads": heads}))
    with pytest.raises(Refused, match=r"alignment_heads in generation_config\.json"):
        alignment_heads(str(tmp_path), LAYERS, HEADS)
