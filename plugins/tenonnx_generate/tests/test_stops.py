"""Texts that end before others; how likely tokens were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenonnx_generate import Generator, GeneratorParams, Model, StopStrings
from tenonnx_generate.errors import Refused

WORDS = st.text("ab", max_size=12)


@given(st.lists(WORDS), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_a_text_ends_before_the_first_of_them(pieces: list[str], strings: list[str]) -> None:
    stops = StopStrings(strings)
    said = [stops.take(piece) for piece in pieces]
    whole = "".join(pieces)
    # The string that is whole first ends the text, wherever longer ones begin.
    ends = [whole.find(s) + len(s) for s in strings if s in whole]
    text = "".join(said) + stops.finish()
    assert stops.stopped is bool(ends)
    assert whole.startswith(text)
    assert not any(string in text for string in strings)
    if not ends:
        assert text == whole


def test_what_could_begin_one_is_kept_back() -> None:
    stops = StopStrings(["END", "\n\n"])
    assert [stops.take(x) for x in ("one", " E", "N", "T\n", "x\n", "\n more", "y")] == [
        "one", " ", "", "ENT", "\nx", "", "",
    ]  # fmt: skip
    assert stops.stopped
    assert stops.finish() == ""
    with pytest.raises(Refused, match="empty"):
        StopStrings(["a", ""])


def test_log_probabilities_are_the_models(model: Model) -> None:
    params = GeneratorParams(model)
    params.set_search_options(batch_size=2, do_sample=True, random_seed=1, temperature=2.0)
    made = Generator(model, params)
    made.append_tokens([1, 2, 3, 4, 5, 6])
    assert made.get_next_logprobs() == [[], []]
    logits = made.get_logits()[:, 0].astype(np.float64)
    made.generate_next_token()
    expected = np.log(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
    for row, (chosen, *best) in enumerate(made.get_next_logprobs(3)):
        assert chosen[0] == made.get_next_tokens()[row]
        assert [token for token, _ in best] == np.argsort(-logits[row])[:3].tolist()
        for token, found in (chosen, *best):
            assert found == pytest.approx(expected[row, token], abs=1e-6)
