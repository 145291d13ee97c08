from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenonnx_cpu.ml import string_arrays
from tenonnx_cpu.ml.string_arrays import WordTable

LONG = ["x" * length + end for length in (3, 4, 7, 8, 9, 15, 16, 17, 40) for end in "ab"]
KEYS = ["", "a", "\0", "a\0", "é", "éé", "ł", "łé", "😀", "😀a", "\ud800", *LONG]
"""Words of all sizes of characters, some of which have the bytes of others."""


def looked_up(keys: list[list[str]], x: np.ndarray, places: list[int]) -> np.ndarray | None:
    """Return the number of each word among a column's keys, by the kernel."""
    cells = [np.arange(len(each) + 1).reshape(-1, 1).view(np.uint8) for each in keys]
    table = pickle.loads(pickle.dumps(WordTable(places, keys, cells)))
    for kernel in (string_arrays.PLACE, string_arrays.LOOK_UP):
        if not kernel.run:
            pytest.skip(kernel.reason)
    y = np.empty((len(x), 8 * len(places)), np.uint8)
    return y.view(np.int64) if table.look_up(x, y, 2, 2) else None


def again(words: list[str]) -> np.ndarray:
    """Return words that are objects of their own."""
    return np.array([*(("?" + word)[1:] for word in words), None], object)[:-1]


@given(st.lists(st.text(max_size=20), unique=True), st.lists(st.text(max_size=20)))
def test_words_are_found_as_in_dictionaries(keys: list[str], others: list[str]) -> None:
    x = again([*keys, *others, *KEYS])[:, None]
    wanted = [keys.index(word) if word in keys else len(keys) for word in x[:, 0]]
    found = looked_up([keys], x, [0])
    assert found is not None
    assert found[:, 0].tolist() == wanted


def test_columns_have_keys_of_their_own() -> None:
    x = again([*KEYS, *KEYS]).reshape(2, -1).T[:, [1, 0, 1]]
    found = looked_up([KEYS, KEYS[::-1], ["b"]], x, [2, 0, 1])
    assert found is not None
    count = len(KEYS)
    wanted = [[number, count - 1 - number, 1] for number in range(count)]
    assert found.tolist() == wanted


def test_digests_are_spread() -> None:
    keys = [f"word{number}" for number in range(4000)]
    table = WordTable([0], [keys], [np.zeros((4001, 1), np.uint8)])
    if not string_arrays.PLACE.run or not string_arrays.LOOK_UP.run:
        pytest.skip(string_arrays.PLACE.reason)
    assert table._columns is not None
    slots = table._columns[1]
    taken = np.flatnonzero(slots[:, 1])
    far = (taken - slots[taken, 0]) & (len(slots) - 1)
    assert far.mean() < 0.5


@pytest.mark.parametrize("odd", [None, 3, 0.5, b"a", np.str_("a"), ["a"]], ids=repr)
def test_what_is_no_word_is_refused(odd: object) -> None:
    x = np.array(["a", "b", "c", None], object).reshape(-1, 1)
    x[3, 0] = odd
    assert looked_up([["a", "b"]], x, [0]) is None
    assert looked_up([["a", "b"]], np.empty((2, 1), object), [0]) is None


def test_layout_is_known() -> None:
    assert string_arrays.layout()


def test_states_that_are_not_as_expected_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for state in (lambda _: 0, lambda _: 0xFF, len):
        monkeypatch.setattr(string_arrays, "_state", state)
        assert string_arrays.layout.__wrapped__() is None
    monkeypatch.undo()
    monkeypatch.setattr(string_arrays, "LENGTH", string_arrays.LENGTH + 8)
    assert string_arrays.layout.__wrapped__() is None
