"""The choice of a token."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import tenonnx
from tenonnx_generate.drawing import Draw, likeliest
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


SAMPLERS: list[dict[str, Any]] = [
    {"top_k": 0},
    {"top_k": 0, "temperature": 2.5},
    {"top_k": 40},
    {"top_k": 3, "top_p": 0.8},
    {"top_k": 0, "top_p": 0.9},
    {"top_k": 0, "top_p": 0.3, "temperature": 0.7},
    {"top_k": 0, "min_p": 0.2},
    {"top_k": 0, "top_p": 0.95, "min_p": 0.05},
]


def chances_by_sorting(logits: Any, options: dict[str, Any]) -> Any:
    """Return the chance of each token by the definitions, in float64."""
    scaled = logits.astype(np.float64) / options.get("temperature", 1.0)
    chances = np.exp(scaled - scaled.max())
    order = np.argsort(-chances, kind="stable")
    chances[order[options["top_k"] or len(order) :]] = 0
    before = np.cumsum(chances[order]) - chances[order]
    if options.get("top_p", 1.0) < 1:
        chances[order[before >= options["top_p"] * chances.sum()]] = 0
    chances[chances < options.get("min_p", 0.0)] = 0
    return chances / chances.sum()


@pytest.mark.parametrize("options", SAMPLERS)
@pytest.mark.parametrize("kind", ["normal", "ties", "peak"])
def test_draws_from_many_tokens_have_the_law_of_sorted_ones(
    options: dict[str, Any], kind: str
) -> None:
    random = np.random.default_rng(3)
    logits = random.normal(0, 2, 2500).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    elif kind == "peak":
        logits[1700] = 9
    if kind == "ties" and options["top_k"]:
        logits += random.normal(0, 1e-3, 2500).astype(np.float32)  # which of equals is not said
    expected = chances_by_sorting(logits, options)
    made = search(do_sample=True, random_seed=11, **options)
    tokens, chances = made.distribution(logits)
    np.testing.assert_array_equal(tokens, np.flatnonzero(expected))
    np.testing.assert_allclose(chances, expected[tokens], rtol=1e-5)
    count = 4000
    found = np.bincount([made.choose(logits, NOTHING) for _ in range(count)], minlength=2500)
    assert not found[expected == 0].any()
    # Bins of at least 20 expected draws each: chi-squared is close to its number of bins.
    order = np.argsort(-expected)
    bins = (np.cumsum(expected[order]) * (count / 20)).astype(int)
    bins = np.minimum(bins, bins.max() - 1)
    wanted, came = (np.bincount(bins, each[order]) for each in (expected * count, found))
    wanted, came = wanted[wanted > 0], came[wanted > 0]
    chi = ((came - wanted) ** 2 / wanted).sum()
    assert chi < len(wanted) + 5 * np.sqrt(2 * len(wanted)), (chi, len(wanted))


def test_the_likeliest_of_many_are_found() -> None:
    random = np.random.default_rng(4)
    for size, count in [(5, 2), (3000, 50), (9001, 1), (9001, 1000), (150_000, 50)]:
        scores = random.normal(0, 1, size).astype(np.float32)
        scores[random.random(size) < 0.5] = -np.inf
        expected = np.sort(np.argsort(-scores, kind="stable")[:count])
        np.testing.assert_array_equal(likeliest(scores, count), expected)


@pytest.mark.parametrize("options", [{}, {"top_p": 0.9}, {"top_k": 50}, {"min_p": 0.1}])
def test_a_draw_takes_less_than_a_tenth_of_sorting(options: dict[str, Any]) -> None:
    logits = np.random.default_rng(0).normal(0, 3, 151_936).astype(np.float32)
    made = search(do_sample=True, random_seed=1, **{"top_k": 0, **options})

    def least(work: Any) -> float:
        taken = []
        for _ in range(7):
            began = time.thread_time()
            work()
            taken.append(time.thread_time() - began)
        return min(taken)

    sorting = least(lambda: np.argsort(-logits, kind="stable"))
    assert least(lambda: made.choose(logits, NOTHING)) < sorting / 10


def test_extreme_temperatures_draw_numbers() -> None:
    for temperature in (1e-30, 1e-6, 1e6):
        made = search(do_sample=True, random_seed=2, temperature=temperature, top_k=0)
        tokens = {made.choose(LOGITS, NOTHING) for _ in range(60)}
        assert tokens == ({1} if temperature < 1 else {0, 1, 2, 3, 4})
    with pytest.raises(tenonnx.RuntimeException, match="no token may come"):
        Draw(np.full(5, -np.inf, np.float32), {})


def test_penalties_count_what_came_after_the_prompt() -> None:
    sequence = np.array([2, 2, 0, 1, 1, 3], np.int32)
    made = search(frequency_penalty=0.5, presence_penalty=0.25)
    made.begin = 2
    assert made.adjusted(LOGITS, sequence).tolist() == [0.25, 1.75, 2, -1.75, 2.5]
    options = {name: option.default for name, option in OPTIONS.items()}
    biased = Search(options, (1,), 0, bias={3: 10.0, 1: -100.0})
    assert biased.adjusted(LOGITS, sequence).tolist() == [1, -97, 2, 9, 2.5]
    assert biased.choose(LOGITS, sequence) == 3


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
