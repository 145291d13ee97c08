"""optimum, sentence-transformers and fastembed, whose sessions are tenonnx's, against torch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("optimum.onnxruntime", reason="`tox -e optimum` installs it")
pytest.importorskip("sentence_transformers")

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *["the", "cat", "sat", "on", "a", "mat"]]
TEXTS = ["the cat sat", "a mat"]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers with random weights, and its tokenizer, as transformers saves them."""
    place = tmp_path_factory.mktemp("tiny")
    (place / "words.txt").write_text("\n".join(WORDS))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        BertTokenizerFast(vocab_file=str(place / "words.txt")).save_pretrained(place)
        BertForSequenceClassification(config).eval().save_pretrained(place)
    return place


def test_optimum_exports_and_runs(folder: Path) -> None:
    from optimum.onnxruntime import ORTModelForSequenceClassification

    tokens = BertTokenizerFast.from_pretrained(folder)(TEXTS, return_tensors="pt", padding=True)
    ours: Any = ORTModelForSequenceClassification.from_pretrained(folder, export=True)
    assert type(ours.session).__module__ == "tenonnx.session"
    with torch.no_grad():
        expected = BertForSequenceClassification.from_pretrained(folder)(**tokens).logits
    np.testing.assert_allclose(ours(**tokens).logits, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def sentences(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A model of sentences, exported beside its tokenizer, and torch's embeddings of texts."""
    from sentence_transformers import SentenceTransformer, models

    place = tmp_path_factory.mktemp("sentences")
    parts = [models.Transformer(str(folder)), models.Pooling(32)]
    plain = SentenceTransformer(modules=parts, device="cpu")
    plain.save(str(place))
    options: Any = {"backend": "onnx", "device": "cpu", "model_kwargs": {"export": True}}
    SentenceTransformer(str(place), **options).save_pretrained(str(place))
    return place, plain.encode(TEXTS)


def test_sentences_are_embedded(sentences: tuple[Path, Any]) -> None:
    from sentence_transformers import SentenceTransformer

    place, expected = sentences
    ours = SentenceTransformer(str(place), backend="onnx", device="cpu")
    np.testing.assert_allclose(ours.encode(TEXTS), expected, rtol=1e-4, atol=1e-5)


def test_fastembed_embeds_them_alike(sentences: tuple[Path, Any]) -> None:
    fastembed = pytest.importorskip("fastembed")
    from fastembed.common.model_description import ModelSource, PoolingType

    place, expected = sentences
    fastembed.TextEmbedding.add_custom_model(
        model="tenonnx/tiny", pooling=PoolingType.MEAN, normalization=False, dim=32,
        sources=ModelSource(hf="tenonnx/tiny"), model_file="onnx/model.onnx",
    )  # fmt: skip
    ours = fastembed.TextEmbedding("tenonnx/tiny", specific_model_path=str(place))
    np.testing.assert_allclose(list(ours.embed(TEXTS)), expected, rtol=1e-4, atol=1e-5)
