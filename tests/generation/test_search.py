"""The choice of a token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenonnx
from tenonnx_generate.options import OPTIONS
from tenonnx_generate.search import Search

LOGITS = np.array([1.0, 3.0, 2.0, -1.0, 2.5], np.float32)
NOTHING = np.zeros(0, np.int32)


def search(row: int = 0, **options: Any) -> Search:
    defaults = {name: option.default for name, option in OPTIONS.items()}
    return Search({**defaults, **options}, (1,), row)


def drawn(count: int = 400, **options: Any) -> list[int]:
    made = search(do_sample=True, **{"random_seed": 5, **options})
    return [made.choose(LOGITS, NOTHING) for _ in range(count)]


def test_the_likeliest_is_taken() -> None:
    assert search().choose(LOGITS, NOTHING) == 1
    for options in ({"top_k": 1}, {"temperature": 0.0}):
        assert set(drawn(20, **options)) == {1}


def test_what_is_drawn_has_its_chance() -> None:
    for options, tokens in [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": 3}, [1, 2, 4]),
        ({"top_p": 0.75}, [1, 4]),
        ({"top_k": 2, "top_p": 0.99}, [1, 4]),
        ({"top_p": 1e-9}, [1]),
        ({"top_k": 0, "temperature": 3.0}, [0, 1, 2, 3, 4]),
    ]:
        found = np.bincount(drawn(4000, **options), minlength=5) / 4000
        chances = np.zeros(5)
        chances[tokens] = np.exp(LOGITS[tokens] / options.get("temperature", 1.0))
        np.testing.assert_allclose(found, chances / chances.sum(), atol=0.03)


def test_seeds_repeat_and_rows_differ() -> None:
    assert drawn() == drawn()
    assert drawn() != drawn(random_seed=6)
    first, second = (search(row, do_sample=True, random_seed=5) for row in range(2))
    assert [first.choose(LOGITS, NOTHING) for _ in range(50)] != [
        second.choose(LOGITS, NOTHING) for _ in range(50)
    ]
    assert drawn(200, random_seed=-1) != drawn(200, random_seed=-1)


def test_penalties_and_tokens_that_may_not_come() -> None:
    said = np.array([1, 3, 1], np.int32)
    adjusted = search(repetition_penalty=2.0).adjusted(LOGITS, said)
    assert adjusted.tolist() == [1, 1.5, 2, -2, 2.5]
    assert search(min_length=4).choose(LOGITS, said) == 4
    assert search(min_length=3).choose(LOGITS, said) == 1
    again = np.array([4, 1, 0, 4], np.int32)
    assert search(no_repeat_ngram_size=2).choose(LOGITS, again) == 4
    assert search(no_repeat_ngram_size=1).choose(LOGITS, again) == 2
    assert search(no_repeat_ngram_size=9).choose(LOGITS, again) == 1
    assert LOGITS.tolist() == [1, 3, 2, -1, 2.5]


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_k": 0, "top_p": 0.75}])
@pytest.mark.parametrize("drawn_by", ["none", "same", "other"])
def test_drafted_tokens_leave_chances_as_they_are(options: dict[str, Any], drawn_by: str) -> None:
    made, drafts = (search(row, do_sample=True, random_seed=9, **options) for row in range(2))
    expected = np.zeros(5)
    tokens, chances = made.distribution(LOGITS)
    expected[tokens] = chances
    count, found, accepted = 5000, np.zeros(5), 0
    given = {"none": None, "same": LOGITS, "other": LOGITS[::-1]}[drawn_by]
    for _ in range(count):
        by = None if given is None else drafts.distribution(given)
        drafted = 2 if by is None else drafts.drawn(*by)
        token = made.choose_drafted(LOGITS, NOTHING, drafted, by)
        found[token] += 1
        accepted += token == drafted
    deviation = np.sqrt(np.maximum(expected * (1 - expected) * count, 1e-9))
    np.testing.assert_array_less(np.abs(found - expected * count), 4 * deviation + 1e-3)
    others = np.zeros(5)
    if given is None:
        others[2] = 1
    else:
        tokens, chances = drafts.distribution(given)
        others[tokens] = chances
    # No test of what is drafted accepts more.
    assert accepted / count == pytest.approx(np.minimum(expected, others).sum(), abs=0.03)


@pytest.mark.parametrize("samples", [False, True])
def test_logits_that_are_no_numbers_are_an_error(samples: bool) -> None:
    for wrong in (np.nan, np.inf):
        if wrong == np.inf and not samples:
            continue
        logits = LOGITS.copy()
        logits[2] = wrong
        with pytest.raises(tenonnx.RuntimeException, match="no numbers"):
            search(do_sample=samples).choose(logits, NOTHING)
