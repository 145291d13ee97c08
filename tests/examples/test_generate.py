"""``examples/generate``: its parts, on decoders of every exported form."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import tenonnx
from models import FLOAT, INT64, model, node, value

FOLDER = Path(__file__).parents[2] / "examples" / "generate"
MODEL = FOLDER / "model" / "model.onnx"
sys.path.insert(0, str(FOLDER))

import decoder as decoding  # noqa: E402 - beside the script, not in a package
import sampling  # noqa: E402
import tokens  # noqa: E402

TOKENIZER = tokens.Tokenizer.load(FOLDER / "model" / "merges.json")
RANDOM = np.random.default_rng(0)
SIZE, VOCABULARY = 16, 32
TEXT = TOKENIZER.encode("A class definition defines a class object. Here is how:\n\n   class Foo")


def exact() -> tenonnx.SessionOptions:
    """Forbids products to round activations, because rounding depends on the number of rows."""
    options = tenonnx.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    return options


def opened(path: Path = MODEL, capacity: int = 256) -> Any:
    cpu = ["CPUExecutionProvider"]
    return decoding.Decoder(tenonnx, path, capacity, sess_options=exact(), providers=cpu)


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape, dtype=np.float32)


@pytest.fixture(scope="module")
def bare() -> Any:
    """The model run without caches of its own: all tokens at once."""
    session = tenonnx.InferenceSession(MODEL, exact())

    def run(given: list[int]) -> Any:
        count = len(given)
        feeds = {"input_ids": np.array([given]), "position_ids": np.arange(count)[None]}
        for arg in session.get_inputs()[2:]:
            feeds[arg.name] = np.zeros((1, arg.shape[1], count, arg.shape[3]), np.float32)
        return session.run(["logits"], feeds)[0][0]

    return run


def test_a_token_at_a_time_is_the_same_as_all_at_once(bare: Any) -> None:
    decoder = opened()
    one_by_one = [decoder.forward([token]) for token in TEXT]
    expected = bare(TEXT)
    np.testing.assert_allclose(one_by_one, expected, atol=1e-3)
    mixed = opened()
    mixed.forward(TEXT[:5])
    np.testing.assert_allclose(mixed.forward(TEXT[5:]), expected[-1], atol=1e-3)
    assert decoder.length == mixed.length == len(TEXT)


def test_the_past_is_neither_moved_nor_copied() -> None:
    decoder = opened(capacity=1 << 17)
    assert decoder.in_place
    places = {name: cache.data_ptr() for name, cache in decoder.caches.items()}
    cache = next(iter(decoder.caches.values())).numpy()
    decoder.forward(TEXT)
    held = cache[:, :, : len(TEXT)].copy()
    tracemalloc.start()
    try:
        for token in TEXT[:3]:
            decoder.forward([token])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # One of the caches has 32 MiB, all of them 384.
    assert cache.nbytes == 1 << 25
    assert peak < cache.nbytes / 4
    np.testing.assert_array_equal(cache[:, :, : len(TEXT)], held)
    assert cache[:, :, len(TEXT) : len(TEXT) + 3].any(axis=(0, 1, 3)).all()
    assert not cache[:, :, len(TEXT) + 3 :].any()
    assert places == {name: cache.data_ptr() for name, cache in decoder.caches.items()}
    with pytest.raises(ValueError, match="do not fit into caches of 131072"):
        decoder.forward([0] * (1 << 17))


def ids(*names: str) -> list[Any]:
    return [value(name, INT64, ["b", "n"]) for name in names]


def grown(path: Path) -> Path:
    """Write a decoder of one layer that returns longer caches, by ai.onnx Attention."""
    nodes = [
        node("Gather", "table input_ids", "x"),
        *(node("MatMul", f"x w{part}", part) for part in "qkv"),
        node(
            "Attention", "q k v _ past_key_values.0.key past_key_values.0.value",
            "a present.0.key present.0.value", is_causal=1, q_num_heads=2, kv_num_heads=1,
        ),
        node("MatMul", "a table_t", "logits"),
    ]  # fmt: skip
    cache, longer = ["b", 1, "past", 8], ["b", 1, "total", 8]
    inputs = [value(f"past_key_values.0.{part}", FLOAT, cache) for part in ("key", "value")]
    outputs = [value(f"present.0.{part}", FLOAT, longer) for part in ("key", "value")]
    return saved(path, nodes, [*ids("input_ids"), *inputs], outputs, {})


def grouped(path: Path) -> Path:
    """Write a decoder of one layer with GroupQueryAttention, as onnxruntime's exporter does."""
    shape = node("Shape", "attention_mask", "total_64", start=1)
    nodes = [
        node("Gather", "table input_ids", "x"),
        *(node("MatMul", f"x w{part}", part) for part in "qkv"),
        node("ReduceSum", "attention_mask one", "count", keepdims=0),
        node("Sub", "count one", "last"),
        node("Cast", "last", "seqlens", to=TensorProto.INT32),
        shape,
        node("Cast", "total_64", "total", to=TensorProto.INT32),
        node(
            "GroupQueryAttention",
            "q k v past_key_values.0.key past_key_values.0.value seqlens total cos sin",
            "a present.0.key present.0.value",
            domain="com.microsoft", num_heads=2, kv_num_heads=1, do_rotary=1,
        ),
        node("MatMul", "a table_t", "logits"),
    ]  # fmt: skip
    angles = np.outer(np.arange(64), 100.0 ** -np.arange(0, 1, 0.25)).astype(np.float32)
    weights = {"one": np.array([1]), "cos": np.cos(angles), "sin": np.sin(angles)}
    cache, longer = ["b", 1, "past", 8], ["b", 1, "total", 8]
    inputs = [value(f"past_key_values.0.{part}", FLOAT, cache) for part in ("key", "value")]
    outputs = [value(f"present.0.{part}", FLOAT, longer) for part in ("key", "value")]
    return saved(path, nodes, [*ids("input_ids", "attention_mask"), *inputs], outputs, weights)


def saved(path: Path, nodes: Any, inputs: Any, outputs: Any, weights: Any) -> Path:
    table = normal(VOCABULARY, SIZE)
    weights |= {"table": table, "table_t": table.T.copy(), "wq": normal(SIZE, SIZE)}
    weights |= {"wk": normal(SIZE, 8), "wv": normal(SIZE, 8)}
    logits = value("logits", FLOAT, ["b", "n", VOCABULARY])
    made = model(nodes, inputs, [logits, *outputs], weights, opset=23, domains={"com.microsoft": 1})
    onnx.save(made, path)
    return path


@pytest.mark.parametrize("write", [grown, grouped])
def test_other_exporters_models(tmp_path: Path, write: Any) -> None:
    path = write(tmp_path / "model.onnx")
    given = [int(token) for token in RANDOM.integers(0, VOCABULARY, 12)]
    whole = opened(path, 16).forward(given)
    decoder = opened(path, 16)
    assert decoder.in_place == (write is grouped)
    decoder.forward(given[:4])
    for token in given[4:]:
        last = decoder.forward([token])
    np.testing.assert_allclose(last, whole, rtol=1e-4, atol=1e-4)
    (cache, _) = decoder.caches.values()
    assert cache.shape()[2] == (16 if write is grouped else 12)


def test_the_most_likely_token() -> None:
    logits = normal(100)
    assert sampling.Sampler(temperature=0)(logits) == logits.argmax()
    assert sampling.Sampler(top_k=1)(logits) == logits.argmax()
    assert sampling.Sampler(top_p=0.0001)(logits) == logits.argmax()


def test_tokens_are_drawn_by_their_chances() -> None:
    chances = np.array([0.5, 0.3, 0.15, 0.05])
    logits = np.log(chances).astype(np.float32)

    def shares(**options: Any) -> Any:
        sampler = sampling.Sampler(**options)
        drawn = [sampler(logits) for _ in range(4000)]
        return np.bincount(drawn, minlength=4) / 4000

    everything = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    np.testing.assert_allclose(shares(**everything), chances, atol=0.03)
    two = np.array([0.625, 0.375, 0, 0])
    np.testing.assert_allclose(shares(**everything | {"top_k": 2}), two, atol=0.03)
    np.testing.assert_allclose(shares(**everything | {"top_p": 0.75}), two, atol=0.03)
    squared = chances**2 / (chances**2).sum()
    np.testing.assert_allclose(shares(**everything | {"temperature": 0.5}), squared, atol=0.03)
    np.testing.assert_array_equal(shares(seed=3), shares(seed=3))


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    encoded = TOKENIZER.encode(text)
    assert TOKENIZER.decode(encoded) == text
    assert "".join(TOKENIZER.stream(iter(encoded))) == text
    assert all(0 <= token < TOKENIZER.end for token in encoded)


def test_tokenizers_of_others_are_read(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    trainer = library.trainers.BpeTrainer(
        vocab_size=280, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["ein Glück, zwei Glück"], trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"eos_token_id": [7, 8]}')
    tokenizer = tokens.open_tokenizer(tmp_path)
    assert tokenizer.end == 7
    text = "ein Glück ist € wert 🎉"
    assert "".join(tokenizer.stream(tokenizer.encode(text))) == text


def test_pairs_are_merged_by_frequency() -> None:
    learnt = tokens.learn("abab abab cab", 260)
    # "ab" stands five times; then "abab" within words, and its space before the second word.
    assert learnt.merges[0] == (ord("a"), ord("b"))
    assert learnt.size == 260
    assert len(learnt.encode("abab")) == 1


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_script_writes_on() -> None:
    prompt = "The class statement"
    done = run(prompt, "--tokens", "24", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(prompt)
    assert len(done.stdout) > len(prompt) + 24
    assert "tokens/s; caches updated in place" in done.stderr
    again = run(prompt, "--tokens", "24", "--seed", "1")
    assert again.stdout == done.stdout


def test_the_model_has_learnt_something(bare: Any) -> None:
    text = TOKENIZER.encode(
        "The try statement specifies exception handlers and cleanup code for a group of "
        "statements. If an exception is raised, the handler is called with the exception."
    )
    logits = bare(text)[:-1].astype(np.float64)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -logits[np.arange(len(text) - 1), text[1:]].mean()
    # A guess among all tokens costs ln 1024 = 6.9.
    assert loss < 3.5


def test_it_is_standard_onnx_and_small() -> None:
    onnx.checker.check_model(MODEL, full_check=True)
    assert {n.domain for n in onnx.load(MODEL).graph.node} == {""}
    assert MODEL.stat().st_size < 2 << 20
    kinds = {t.data_type for t in onnx.load(MODEL).graph.initializer}
    assert {TensorProto.INT4, TensorProto.INT8} < kinds
    assert helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)) in kinds
