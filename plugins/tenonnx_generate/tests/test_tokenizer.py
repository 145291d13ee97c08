"""Text to tokens and back, and chat templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folders import BOS, EOS, PAD, tokenizer, write_folder

pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
pytest.importorskip("jinja2", reason="tenonnx-generate is not installed")

from tenonnx_generate import Model, Tokenizer
from tenonnx_generate.errors import Missing, Refused

USER = [{"role": "user", "content": "hé"}]


@pytest.fixture(scope="module")
def texts(model: Model) -> Tokenizer:
    return Tokenizer(model)


def test_texts_are_bytes_and_special_tokens(texts: Tokenizer) -> None:
    assert texts.encode("<s>aé</s>").tolist() == [BOS, 97, 195, 169, EOS]
    assert texts.decode([BOS, 97, 195, 169, EOS]) == "aé"
    assert texts.encode("a").dtype == np.int32
    assert texts.decode(np.array([], np.int32)) == texts.decode([1999]) == ""
    assert texts.to_token_id("</s>") == EOS
    assert texts.to_token_id("nothing") == -1
    assert (texts.bos_token_id, texts.eos_token_ids.tolist(), texts.pad_token_id) == (
        BOS, [EOS], PAD,
    )  # fmt: skip
    for wrong in ([-1], [1.5], ["a"]):
        with pytest.raises(Refused, match="are no tokens"):
            texts.decode(wrong)


def test_a_batch_is_padded_on_the_right(texts: Tokenizer) -> None:
    batch = texts.encode_batch(["abc", "d"])
    assert batch.as_numpy().tolist() == [[97, 98, 99], [100, PAD, PAD]]
    assert batch.shape() == [2, 3]
    assert texts.decode_batch(batch) == ["abc", "d"]


def test_options(model: Model) -> None:
    texts = Tokenizer(model)
    texts.update_options(skip_special_tokens="false", add_special_tokens=False)
    assert texts.decode([BOS, 97]) == "<s>a"
    with pytest.raises(Refused, match="no option 'skip'"):
        texts.update_options(skip="true")
    with pytest.raises(Refused, match="expected true or false"):
        texts.update_options(skip_special_tokens="perhaps")


@given(st.text())
def test_a_stream_says_what_all_tokens_say(texts: Tokenizer, text: str) -> None:
    stream = texts.create_stream()
    pieces = [stream.decode(int(token)) for token in texts.encode(text)]
    assert "".join(pieces) + stream.finish() == texts.decode(texts.encode(text))
    assert "\ufffd" in text or "\ufffd" not in "".join(pieces)


@given(st.lists(st.sampled_from([65, 128, 152, 194, 226, 240, 131]), max_size=60))
def test_a_stream_of_any_bytes_loses_none(texts: Tokenizer, tokens: list[int]) -> None:
    stream = texts.create_stream()
    said = "".join(stream.decode(token) for token in tokens) + stream.finish()
    whole = texts.decode(tokens)
    assert said == whole


def test_bytes_of_a_vocabulary_of_characters(tmp_path: Path) -> None:
    """As Llama 2 has them: all bytes in a row are characters, or none is."""
    folder = write_folder(tmp_path / "folder")
    words = ["▁", "a", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {word: place for place, word in enumerate(words)}
    kind = {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "merges": []}
    steps = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    made = {**tokenizer(), "model": {**kind, "vocab": vocabulary}, "pre_tokenizer": None}
    made |= {"decoder": {"type": "Sequence", "decoders": steps}, "added_tokens": []}
    made["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    (folder / "tokenizer.json").write_text(json.dumps(made))
    texts = Tokenizer(Model(folder))
    for text in ("aé☃☃😀 a a", "☃ a😀😀é"):
        stream = texts.create_stream()
        pieces = [stream.decode(int(token)) for token in texts.encode(text)]
        assert "".join(pieces) == text
        assert "☃" in pieces


def test_templates(texts: Tokenizer, tmp_path: Path) -> None:
    expected = "<s><|user|>hé<|assistant|>"
    assert texts.apply_chat_template(USER) == expected
    assert texts.apply_chat_template(json.dumps(USER)) == expected
    assert texts.apply_chat_template(USER, add_generation_prompt=False) == "<s><|user|>hé"
    other = "{{ tools | tojson }}{{ messages[0].content.replace('h', 'H') }}{{ extra }}"
    tools = '[{"name": "f<"}]'
    said = texts.apply_chat_template(USER, template_str=other, tools=tools, extra=3)
    assert said == '[{"name": "f<"}]Hé3'
    folder = write_folder(tmp_path / "folder")
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ loop.index }}{% endfor %}"
    )
    assert Tokenizer(Model(folder)).apply_chat_template(USER * 3) == "123"


@pytest.mark.parametrize(("template", "said"), [
    ("{% for %}", "wrong in line 1"),
    ("{{ raise_exception('no system') }}", "refuses the messages: no system"),
    ("{{ nothing.at.all }}", "UndefinedError"),
    ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
    ("{{ messages.append(1) }}", "SecurityError"),
    ("{{ cycler.__init__.__globals__.os.system('true') }}", "SecurityError"),
    ("{% for i in range(10 ** 9) %}{% endfor %}", "OverflowError"),
    ("{% include 'x' %}", "TypeError"),
    ("{{ 1 // 0 }}", "ZeroDivisionError"),
    ("{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "makes more than"),
])  # fmt: skip
def test_templates_that_fail(texts: Tokenizer, template: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        texts.apply_chat_template(USER, template_str=template)


@pytest.mark.parametrize("messages", ["nothing", "{}", "[1]", [1]])
def test_messages_that_are_none(texts: Tokenizer, messages: Any) -> None:
    with pytest.raises(Refused, match="messages are"):
        texts.apply_chat_template(messages)


@pytest.mark.parametrize("content", [
    "", "{}", "[]", "{", json.dumps({**tokenizer(), "model": {"type": "None"}}),
    json.dumps({**tokenizer(), "decoder": {"type": "Nothing"}}),
])  # fmt: skip
def test_tokenizers_that_are_broken(tmp_path: Path, content: str) -> None:
    folder = write_folder(tmp_path / "folder")
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(Refused, match="is no tokenizer"):
        Tokenizer(Model(folder))


def test_what_a_folder_has_not(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(Refused, match="has no chat template"):
        Tokenizer(Model(folder)).apply_chat_template(USER)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(Missing, match=r"has no tokenizer\.json"):
        Tokenizer(Model(folder))
