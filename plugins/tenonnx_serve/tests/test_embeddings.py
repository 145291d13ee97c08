"""Embeddings and tokens of texts, at OpenAI's and vLLM's paths."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("msgspec", reason="tenonnx-serve is not installed")
pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")

from folders import decoder, tokenizer, write_folder
from language import MESSAGES
from models import FLOAT, INT64, model, node, value
from servers import Running, double, serving
from tenonnx import InferenceSession, InvalidArgument, NotSupported
from tenonnx_serve.openai.pooling import Pooling, pooling_in
from tenonnx_serve.settings import Limits, Settings

WIDTH = 6
TABLE = np.random.default_rng(1).standard_normal((264, WIDTH), np.float32)


def write_encoder(folder: Path, modules: list[str], pooling: dict[str, Any]) -> Path:
    """Write an encoder whose vectors are a table's rows, with sentence-transformers' files."""
    folder.mkdir(parents=True)
    nodes = [node("Gather", "table input_ids", "last_hidden_state")]
    ids = [value(name, INT64, ["b", "n"]) for name in ("input_ids", "attention_mask")]
    outputs = [value("last_hidden_state", FLOAT, ["b", "n", WIDTH])]
    onnx.save(model(nodes, ids, outputs, {"table": TABLE}), folder / "model.onnx")
    said = tokenizer() | {"padding": {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 258, "pad_type_id": 0, "pad_token": "<pad>",
    }}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(said))
    listed = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": f"st.models.{kind}"}
        for n, kind in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("models")
    modules = ["Transformer", "Pooling", "Normalize"]
    write_encoder(root / "mean" / "1", modules, {"pooling_mode_mean_tokens": True})
    write_encoder(root / "cls" / "1", modules[:2], {"pooling_mode_cls_token": True})
    double(root / "double" / "1" / "model.onnx")
    write_folder(root / "plain")
    write_folder(root / "states")
    onnx.save(decoder(hidden=True), root / "states" / "model.onnx")
    limits = Limits(waiting=4, seconds=20)
    with serving(Settings(str(root), port=0, grpc_port=None, limits=limits)) as found:
        yield found


def embedded(running: Running, name: str, given: Any, **asked: Any) -> Any:
    said = {"model": name, "input": given, **asked}
    status, found, _ = running.call("POST", "/v1/embeddings", said)
    assert status == 200, found
    assert [each["index"] for each in found["data"]] == list(range(len(found["data"])))
    return [each["embedding"] for each in found["data"]], found["usage"]["total_tokens"]


def test_encoders_pool_and_normalize_as_their_files_say(running: Running) -> None:
    texts = ["one", "a longer text", "x", *(chr(97 + n % 26) * (n % 5 + 1) for n in range(60))]
    vectors, count = embedded(running, "mean", texts)
    assert count == sum(min(len(text), 12) for text in texts)
    for text, vector in zip(texts, vectors, strict=True):
        mean = TABLE[list(text.encode())[:12]].mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), rtol=1e-5)
    first, _ = embedded(running, "cls", ["one", list(b"two")])
    np.testing.assert_allclose(first, TABLE[[111, 116]], rtol=1e-6)


def test_embeddings_are_base64_or_shorter(running: Running) -> None:
    (plain,), _ = embedded(running, "mean", "some text")
    (coded,), _ = embedded(running, "mean", "some text", encoding_format="base64")
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(coded), "<f4"), plain, rtol=1e-6)
    (short,), _ = embedded(running, "mean", "some text", dimensions=3)
    expected = np.array(plain[:3])
    np.testing.assert_allclose(short, expected / np.linalg.norm(expected), rtol=1e-5)


def test_decoders_embed_the_last_hidden_state(running: Running) -> None:
    (found, other), count = embedded(running, "states", ["The with", "and"])
    assert count == 11
    session = InferenceSession(f"{running.settings.source}/states/model.onnx")
    ids = np.array([list(b"The with")])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)} | {
        arg.name: np.zeros((1, 2, 0, 16), np.float32)
        for arg in session.get_inputs()
        if arg.name.startswith("past")
    }
    (states,) = session.run(["hidden_states"], feeds)
    last = states[0, -1]
    np.testing.assert_allclose(found, last / np.linalg.norm(last), rtol=2e-4, atol=1e-5)
    assert np.linalg.norm(other) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("said", "status", "words"), [
    ({"model": "plain", "input": "a"}, 400, "include_hidden_states"),
    ({"model": "double", "input": "a"}, 400, "no tokenizer.json"),
    ({"model": "none", "input": "a"}, 404, "does not exist"),
    ({"model": "mean", "input": ""}, 400, "no tokens"),
    ({"model": "mean", "input": ["a", []]}, 400, "no tokens"),
    ({"model": "mean", "input": [264]}, 400, "not 0 to 260"),
    ({"model": "states", "input": "a" * 600}, 400, "maximum context"),
    ({"model": "mean", "input": "a", "dimensions": 7}, 400, "the model has 6"),
    ({"model": "mean", "input": ["a"] * 2049}, 400, "at most 2048"),
    ({"model": "mean", "input": 3}, 400, "input"),
])  # fmt: skip
def test_texts_that_cannot_be(running: Running, said: Any, status: int, words: str) -> None:
    found, answer, _ = running.call("POST", "/v1/embeddings", said)
    assert words in answer["error"]["message"]
    assert found == status


def test_tokens_of_texts_and_back(running: Running) -> None:
    said = {"model": "plain", "prompt": "The ä"}
    _, found, _ = running.call("POST", "/tokenize", said)
    assert found == {
        "count": 6, "max_model_len": 128, "tokens": list("The ä".encode()), "token_strs": None
    }  # fmt: skip
    _, found, _ = running.call("POST", "/detokenize", {"model": "plain", "tokens": found["tokens"]})
    assert found == {"prompt": "The ä"}
    said = {"model": "plain", "messages": MESSAGES, "return_token_strs": True}
    _, found, _ = running.call("POST", "/tokenize", said)
    assert found["token_strs"] == ["<s>", "<|user|>", "h", "i", "<|assistant|>"]
    status, found, _ = running.call("POST", "/tokenize", {"model": "plain"})
    assert (status, "one of them" in found["error"]["message"]) == (400, True)
    status, found, _ = running.call("GET", "/tokenizer_info")
    assert (status, "name one" in found["error"]["message"]) == (400, True)


def test_every_mode_has_sentence_transformers_formula() -> None:
    vectors = np.random.default_rng(0).standard_normal((2, 4, 3), np.float32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]])
    own = vectors[0, :3]
    expected = {
        "cls": own[0], "lasttoken": own[2], "max": own.max(0), "mean": own.mean(0),
        "mean_sqrt_len_tokens": own.sum(0) / np.sqrt(3),
        "weightedmean": (own * [[1], [2], [3]]).sum(0) / 6,
    }  # fmt: skip
    for mode, vector in expected.items():
        found = Pooling((mode,), normalizes=False).of(vectors, mask)
        np.testing.assert_allclose(found[0], vector, rtol=1e-5)
    both = Pooling(("cls", "mean"), normalizes=False).of(vectors, mask)
    np.testing.assert_allclose(both[0], np.concatenate([own[0], own.mean(0)]), rtol=1e-5)


def test_files_that_are_wrong(tmp_path: Path) -> None:
    assert pooling_in(tmp_path, "mean") == Pooling(("mean",))
    modules = ["Transformer", "Pooling", "Dense"]
    with pytest.raises(NotSupported, match="has a Dense"):
        pooling_in(write_encoder(tmp_path / "a", modules, {"pooling_mode": "mean"}), "mean")
    with pytest.raises(NotSupported, match="has the modes"):
        pooling_in(write_encoder(tmp_path / "b", modules[:2], {"pooling_mode": "odd"}), "mean")
    (tmp_path / "b" / "modules.json").write_text('[{"type": "a.Pooling", "path": "../../x"}]')
    with pytest.raises(InvalidArgument, match="lies outside"):
        pooling_in(tmp_path / "b", "mean")
    (tmp_path / "b" / "modules.json").write_text("{")
    with pytest.raises(InvalidArgument, match="is wrong"):
        pooling_in(tmp_path / "b", "mean")
