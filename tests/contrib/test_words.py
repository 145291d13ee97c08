"""Tokenizer, and hashes of strings: the answers are onnxruntime's, typed here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import Row, model_of

import tenonnx


def run(op: str, texts: Any, **attributes: Any) -> Any:
    x = np.array(texts, dtype=object)
    model = model_of(Row(op, [np.empty(x.shape, np.float32)], attributes))
    model.graph.input[0].type.tensor_type.elem_type = 8
    return tenonnx.InferenceSession(model, providers=["cpu"]).run(None, {"x0": x})[0].tolist()


TEXTS = ["Hello World", "I love, science", "", "  a b", "über ñ"]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (
            {"separators": [" "], "mincharnum": 1},
            [
                ["Hello", "World", "#"],
                ["I", "love,", "science"],
                ["#"] * 3,
                ["a", "b", "#"],
                ["über", "ñ", "#"],
            ],
        ),
        (
            {"separators": [" ", "o|,"], "mincharnum": 2},
            [["Hell", "rld"], ["ve", "science"], ["#"] * 2, ["#"] * 2, ["über", "#"]],
        ),
        (
            {"tokenexp": "l+|o", "mincharnum": 1},
            [["ll", "o", "o", "l"], ["l", "o", "#", "#"], ["#"] * 4, ["#"] * 4, ["#"] * 4],
        ),
    ],
)
def test_tokenizer(attributes: dict[str, Any], expected: list[list[str]]) -> None:
    assert run("Tokenizer", TEXTS, mark=0, pad_value="#", **attributes) == expected
    marked = run("Tokenizer", TEXTS, mark=1, pad_value="#", **attributes)
    for row, plain in zip(marked, expected, strict=True):
        tokens = [token for token in plain if token != "#"]
        assert row == ["\x02", *tokens, "\x03"] + ["#"] * (len(plain) - len(tokens))


@pytest.mark.parametrize("attributes", [{"separators": [""]}, {"tokenexp": "."}])
def test_tokenizer_cuts_characters(attributes: dict[str, Any]) -> None:
    cut = run("Tokenizer", [["über", "ñ"]], mark=0, mincharnum=1, pad_value="", **attributes)
    assert cut == [[["ü", "b", "e", "r"], ["ñ", "", "", ""]]]
    with pytest.raises(tenonnx.TenonnxError, match="mincharnum is 2; expected 1"):
        run("Tokenizer", ["a"], mark=0, mincharnum=2, pad_value="", **attributes)


def test_tokenizer_without_tokens() -> None:
    for mark in (0, 1):
        given = {"mark": mark, "mincharnum": 1, "pad_value": "#", "separators": [" "]}
        assert run("Tokenizer", ["", " "], **given) == [[], []]


def test_tokenizer_wants_one_way() -> None:
    for given in ({}, {"separators": [" "], "tokenexp": "a"}):
        with pytest.raises(tenonnx.TenonnxError, match="either separators or tokenexp"):
            run("Tokenizer", ["a"], mark=0, mincharnum=1, pad_value="#", **given)


def test_murmur_hash_of_strings() -> None:
    # Published vectors of MurmurHash3_x86_32 with seed 0.
    hashes = run("MurmurHash3", ["", "test", "Hello, world!"], seed=0)
    assert hashes == [0, 0xBA6BD213, 0xC0363E43]
