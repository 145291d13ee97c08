from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Watch, session

import tenonnx
from models import INT64, node
from tenonnx_array.tfidf import MOST_WHOLE, table
from tenonnx_cpu.ml import tfidf, tokens


@st.composite
def vectorizers(draw: st.DrawFn) -> dict[str, Any]:
    """Return attributes: n-grams of up to three of five tokens, each in a column of its own."""
    grams = [
        draw(
            st.lists(st.tuples(*[st.integers(0, 4)] * n), min_size=n == 1, max_size=4, unique=True)
        )
        for n in (1, 2, 3)
    ]
    count = sum(map(len, grams))
    ends = np.cumsum([0, *(n * len(each) for n, each in enumerate(grams, 1))])
    shortest = draw(st.integers(1, 3))
    weights = st.lists(st.floats(0.5, 4, width=32), min_size=count, max_size=count)
    return {
        "pool_int64s": [token for each in grams for gram in each for token in gram],
        "ngram_counts": ends[:-1].tolist(),
        "ngram_indexes": draw(st.permutations(range(count))),
        "min_gram_length": shortest,
        "max_gram_length": draw(st.integers(shortest, 3)),
        "max_skip_count": draw(st.integers(0, 3)),
        "mode": draw(st.sampled_from(["TF", "IDF", "TFIDF"])),
        **draw(st.sampled_from([{}, {"weights": draw(weights)}])),
    }


ROWS = st.lists(st.lists(st.integers(0, 6), min_size=6, max_size=6), min_size=1, max_size=4)


@settings(deadline=None)
@given(vectorizers(), ROWS)
def test_counts_are_numpys(attributes: dict[str, Any], rows: list[list[int]]) -> None:
    kernel = table.find("", "TfIdfVectorizer", 9)
    assert kernel is not None
    plain = kernel.bind(np, attributes, 1)
    tfidf.TFIDF.request()
    for x in (np.array(rows), np.array(rows[0])):
        one = session(
            [node("TfIdfVectorizer", "x", "y", **attributes)], {"x": x}, "y", kinds={"x": INT64}
        )
        np.testing.assert_array_equal(one.run(None, {"x": x})[0], plain(x))


GRAMS: dict[str, Any] = {
    "pool_int64s": [0, 1, 2, 1, 2], "ngram_counts": [0, 3], "ngram_indexes": [0, 1, 2, 3],
    "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 5, "mode": "TF",
}  # fmt: skip


@pytest.mark.parametrize("indexes", [[0, 1, 2], [0, 1, 2, -1]], ids=str)
def test_ngrams_without_columns_are_refused(indexes: list[int]) -> None:
    layer = node("TfIdfVectorizer", "x", "y", **GRAMS | {"ngram_indexes": indexes})
    with pytest.raises(Exception, match=r"ngram_indexes"):
        session([layer], {"x": np.zeros((1, 3), np.int64)}, "y", kinds={"x": INT64})


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("pool", [[-3, 0, 4], [0, MOST_WHOLE], [2**31 - 2, 2**31 - 1]], ids=str)
def test_whole_tokens_have_the_numbers_of_the_dictionary(pool: list[int], dtype: str) -> None:
    kernel = table.find("", "TfIdfVectorizer", 9)
    assert kernel is not None
    grams = {"pool_int64s": pool, "ngram_counts": [0], "ngram_indexes": [*range(len(pool))]}
    own = kernel.bind(np, GRAMS | grams | {"max_gram_length": 1}, 1)
    limits = np.iinfo(dtype)
    near = [min(each + n, limits.max) for each in pool for n in (-1, 0, 1)]
    x = np.array([near, [limits.min, limits.max, *near[2:]]], dtype)
    expected = [[own.trie.numbers.get(each, -1) for each in row] for row in x.tolist()]
    for layout in (x, np.asfortranarray(x), x[:, ::-1][:, ::-1], x.repeat(2, 1)[:, ::2]):
        found = own.numbers(layout)
        assert found.flags.c_contiguous
        assert found.tolist() == expected
    again = pickle.loads(pickle.dumps(own))  # as the file of a plan does
    np.testing.assert_array_equal(again(x), own(x))


def test_as_many_tokens_as_there_are_may_be_skipped() -> None:
    x = {"x": np.array([[1, 3, 3, 2], [1, 2, 3, 3]])}
    skips = (4, 2**62, 2**63 - 1)
    made = [node("TfIdfVectorizer", "x", "y", **GRAMS | {"max_skip_count": n}) for n in skips]
    found = [session([layer], x, "y", kinds={"x": INT64}).run(None, x)[0] for layer in made]
    assert found[0][:, 3].tolist() == [1, 1]
    assert all(np.array_equal(other, found[0]) for other in found)


def test_rows_are_shared_and_long_ones_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watch(tfidf.TFIDF, monkeypatch)
    x = np.random.default_rng(0).integers(0, 4, (500, 40))
    layer = node("TfIdfVectorizer", "x", "y", **GRAMS)
    one = session([layer], {"x": x}, "y", kinds={"x": INT64}, threads=4)
    (found,) = one.run(None, {"x": x})
    assert watched.calls == 1
    monkeypatch.setattr(tfidf, "MAX_TASK_ELEMENTS", 100)
    np.testing.assert_array_equal(one.run(None, {"x": x})[0], found)
    assert watched.calls == 1


CUT = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    cut (string[n] texts) => (float[k, 3] y) {
        tokens = com.microsoft.Tokenizer
            <mark = 0, mincharnum = 2, pad_value = "#", tokenexp = "[a-z0-9]+"> (texts)
        y = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 2,
            max_skip_count = 0, ngram_counts = [0, 2], ngram_indexes = [0, 1, 2],
            pool_strings = ["ab", "c3", "ab", "c3"]> (tokens)
    }
""")


def test_texts_are_cut_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    one = tenonnx.InferenceSession(CUT.SerializeToString())
    texts = np.array(["ab c3,ab", "c c3 ab!", "", "x-ab-c3-ab-c3"], object)
    watch = Watch(tokens.NUMBER, monkeypatch)
    (y,) = one.run(None, {"texts": texts})
    assert y.tolist() == [[2, 1, 1], [1, 1, 0], [0, 0, 0], [2, 2, 2]]
    assert watch.calls == 1
