from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from running import Watch, session

from models import node
from tenonnx_contrib.hashing import murmur_hash3
from tenonnx_cpu.ml import hashing

STRING, INT32, UINT32 = 8, 6, 12


@pytest.mark.parametrize("positive", [0, 1])
def test_hashes_are_numpys(positive: int, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = [Watch(kernel, monkeypatch) for kernel in (hashing.MURMUR3, hashing.MURMUR3_WORDS)]
    words = np.array([["", "a", "ab"], ["abcd", "abcdefghi", "été"], ["x" * 99, "€", "😀"]], object)
    layer = node(
        "MurmurHash3", "x", "y", domain="com.microsoft", seed=-5 & 0xFFFFFFFF, positive=positive
    )
    given = ((words, STRING), (words[:2, :2], STRING), (words[:2, :2].T, STRING))
    for x, kind in given:
        kinds = {"x": kind, "y": UINT32 if positive else INT32}
        one = session([layer], {"x": x}, "y", domains={"com.microsoft": 1}, kinds=kinds)
        before = [each.calls for each in watched]
        (found,) = one.run(None, {"x": x})
        assert [each.calls for each in watched] > before
        is_ascii = all(word.isascii() for word in x.flat)
        assert (watched[0].calls == before[0]) == is_ascii
        wanted = murmur_hash3(np, x, seed=-5 & 0xFFFFFFFF, positive=positive)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64, "f4", "f8"])
@pytest.mark.parametrize("positive", [0, 1])
def test_hashes_of_numbers_are_numpys(
    positive: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).integers(0, 1 << 30, (7, 33)).astype(dtype)
    layer = node("MurmurHash3", "x", "y", domain="com.microsoft", seed=9, positive=positive)
    kinds = {
        "x": helper.np_dtype_to_tensor_dtype(x.dtype), "y": UINT32 if positive else INT32
    }  # fmt: skip
    watched = Watch(hashing.MURMUR3_NUMBERS, monkeypatch)
    for keys in (x, x[:, ::2], x[:1, :1]):
        one = session([layer], {"x": keys}, "y", domains={"com.microsoft": 1}, kinds=kinds)
        wanted = murmur_hash3(np, keys, seed=9, positive=positive)
        for _ in range(3):
            np.testing.assert_array_equal(one.run(None, {"x": keys})[0], wanted)
    assert watched.calls


@given(st.lists(st.text(max_size=20)))
def test_bytes_are_those_of_utf_8(words: list[str]) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in words]
    x = np.array([*texts, ""], object)[:-1]
    data, lengths = hashing._bytes_of(x)
    assert bytes(data) == "".join(texts).encode()
    assert lengths.tolist() == [len(text.encode()) for text in texts]
