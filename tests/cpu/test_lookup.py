"""Numbers looked up among keys: what numpy finds, and what a dictionary does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Watch, require_kernels, session

from models import node
from tenonnx_array.ml.encode import Keys
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.ml import lookup, string_arrays
from tenonnx_cpu.ml.kernels import FACTOR

require_kernels()

ML = "ai.onnx.ml"
NAN = float("nan")


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("values", ["values_floats", "values_int64s"])
def test_floats(threads: int, values: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watch(lookup.FIND_HASHED, monkeypatch)
    keys = [0.5, NAN, -2.0, 0.5, 0.0, float("inf"), 3e38]
    x = np.array([-0.0, 0.0, 0.5, NAN, -NAN, -2, 2, np.inf, -np.inf, 3e38] * 3000, np.float32)
    layer = node("LabelEncoder", "x", "y", domain=ML, keys_floats=keys, **{values: range(7)})
    kinds = {"y": 1 if values == "values_floats" else 7}
    one = session([layer], {"x": x}, "y", domains={ML: 4}, threads=threads, kinds=kinds)
    none = 0.0 if values == "values_floats" else -1.0
    wanted = np.array([4, 4, 3, 1, 1, 2, none, 5, none, 6] * 3000)
    for _ in range(3):
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], wanted)
    assert watched.calls == 3


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32, np.float64])
def test_encodings(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watch(lookup.FIND_WHOLE, monkeypatch)
    x = (np.arange(-40, 40).reshape(8, 10) / 4).astype(dtype)
    categories = [3, -2, 0, 7]
    kinds = {"x": {np.int64: 7, np.int32: 6, np.float32: 1, np.float64: 11}[dtype]}
    layer = node("OneHotEncoder", "x", "y", domain=ML, cats_int64s=categories)
    one = session([layer], {"x": x}, "y", domains={ML: 1}, kinds=kinds)
    wanted = np.trunc(x)[..., None] == np.array(categories)
    for _ in range(3):
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], wanted.astype(np.float32))
    assert watched.calls == 3


INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)


@settings(deadline=None, max_examples=60)
@given(st.lists(INTEGERS | st.integers(-9, 9), min_size=1, max_size=40), st.lists(INTEGERS))
def test_whole_numbers_are_a_dictionarys(keys: list[int], others: list[int]) -> None:
    table = np.arange(len(keys) + 1)
    finder = lookup.finder_of(Keys(np.array(keys)), table, False)
    assert finder is not None
    values = np.array([*keys, *others, 0])
    made = finder.launch(values, 1)
    assert made is not None
    known = {key: place for place, key in enumerate(keys)}
    assert done(made).tolist() == [known.get(value, len(keys)) for value in values.tolist()]


def test_keys_that_come_to_one_slot_are_left_to_numpy() -> None:
    inverse = pow(FACTOR, -1, 1 << 64)
    keys = [n * inverse % (1 << 64) for n in range(200)]
    signed = np.array(keys, np.uint64).view(np.int64)
    assert lookup.finder_of(Keys(signed), np.arange(201), False) is None


@pytest.mark.parametrize("threads", [1, 4])
def test_words(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watch(string_arrays.LOOK_UP, monkeypatch)
    words = ["", "a", "é", "ł", "😀", "a word of many characters", "none"]
    x = np.array(words * 3000, object).reshape(-1, 10)
    given: dict[str, Any] = {"keys_strings": words[:6], "values_int64s": range(6)}
    layer = node("LabelEncoder", "x", "y", domain=ML, **given)
    one = session([layer], {"x": x}, "y", domains={ML: 4}, threads=threads, kinds={"x": 8, "y": 7})
    wanted = np.array([0, 1, 2, 3, 4, 5, -1] * 3000).reshape(-1, 10)
    for some in (slice(None), slice(None, None, -1), slice(1)):
        np.testing.assert_array_equal(one.run(None, {"x": x[some]})[0], wanted[some])
    assert watched.calls == 2
