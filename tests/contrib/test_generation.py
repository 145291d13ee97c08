"""Laws of the search operators; ``rows_generation.py`` compares them with onnxruntime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from rows import Row, feeds_of, model_of
from rows_generation import BART, GPT, T5, one, text
from toy_decoders import HEADS, INT32, LAYERS, SIZE, VOCABULARY, gpt, value

import tenonnx

END = 1


def run(op: str, inputs: list[Any], outputs: int = 1, **attributes: Any) -> list[Any]:
    row = Row(op, inputs, {"eos_token_id": END, **attributes}, outputs=range(outputs))
    return tenonnx.InferenceSession(model_of(row), providers=["cpu"]).run(None, feeds_of(row))


def logits_after(ids: Any, prompt: int) -> Any:
    """Logits of the next token: the toy model runs the prompt at once, then token by token."""
    model = helper.make_model(gpt(), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = tenonnx.InferenceSession(model, providers=["cpu"])
    empty = np.empty((2, len(ids), HEADS, 0, SIZE), np.float32)
    caches, begin, logits = [empty] * LAYERS, 0, empty
    for end in range(prompt, ids.shape[1] + 1):
        new = np.ascontiguousarray(ids[:, begin:end])
        feeds = {"input_ids": new, "attention_mask": np.ones((len(ids), end), np.int32)}
        feeds["position_ids"] = np.tile(np.arange(begin, end, dtype=np.int32), (len(ids), 1))
        feeds |= {f"past_{i}": cache for i, cache in enumerate(caches)}
        logits, *caches = session.run(None, feeds)
        begin = end
    return logits[:, -1]


def log_softmax(x: Any) -> Any:
    x = x.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_as_many_beams_as_sequences_find_the_best() -> None:
    allowed = np.zeros(VOCABULARY, np.int32)
    tokens = [3, 5, 8, 9]
    allowed[tokens] = 1
    prompt = np.array([[7, 4]], np.int32)
    search = [prompt, one(5), None, one(16), one(4), None, None, allowed]
    found, scores = run("BeamSearch", search, 2, **GPT)
    ends = np.array(list(itertools.product(tokens, repeat=3)), np.int32)
    whole = np.hstack([np.repeat(prompt, len(ends), axis=0), ends])
    total = sum(
        log_softmax(logits_after(whole[:, :n], 2))[range(len(ends)), whole[:, n]] for n in (2, 3, 4)
    )
    best = np.argsort(-total)[:4]
    np.testing.assert_array_equal(found[0], whole[best])
    np.testing.assert_allclose(scores[0], total[best] / 5, rtol=1e-5)


@pytest.mark.parametrize("model", [GPT, T5, BART], ids=["gpt", "t5", "bart"])
def test_batch_entries_do_not_know_of_each_other(model: dict[str, Any]) -> None:
    ids = text(np.random.default_rng(1), 3)
    settings = [one(9), one(0), one(3), one(2), one(0.5)]
    together = run("BeamSearch", [ids, *settings], 2, **model)
    alone = [run("BeamSearch", [each[None], *settings], 2, **model) for each in ids]
    for n, results in enumerate(together):
        np.testing.assert_allclose(results, np.concatenate([each[n] for each in alone]), rtol=1e-5)


def test_greedy_search_takes_the_likeliest_until_the_end() -> None:
    ids = np.random.default_rng(2).integers(2, VOCABULARY, (40, 3)).astype(np.int32)
    allowed = np.arange(VOCABULARY, dtype=np.int32)  # all but the padding
    (written,) = run("GreedySearch", [ids, one(8), None, None, allowed], **GPT)
    expected = ids
    while expected.shape[1] < 8:
        token = logits_after(expected, 3)[:, 1:].argmax(-1) + 1
        expected = np.hstack([expected, token[:, None].astype(np.int32)])
    ended = (expected == END).cumsum(axis=1) > 0
    assert 0 < ended[:, -1].sum() < len(ids)
    np.testing.assert_array_equal(written, np.where(ended, 0, expected))


def test_sampling_draws_with_the_models_probabilities() -> None:
    prompt = np.array([[7, 4, 9]], np.int32)
    many = np.repeat(prompt, 20_000, axis=0)
    settings = [many, one(4), *[None] * 6, one(5)]
    written, filtered = run("Sampling", settings, 2, **GPT, top_p=0.8, temperature=2.0)
    probabilities = np.exp(log_softmax(logits_after(prompt, 3)[0] / 2))
    order = np.argsort(-probabilities)
    kept = order[: int(np.searchsorted(probabilities[order].cumsum(), 0.8)) + 1]
    assert set(np.flatnonzero(filtered[0] > -1e19)) == set(kept)
    expected = np.zeros(VOCABULARY)
    expected[kept] = probabilities[kept] / probabilities[kept].sum()
    # The end is written as padding.
    expected[[0, END]] = expected[0] + expected[END], 0
    counts = np.bincount(written[:, 3], minlength=VOCABULARY) / len(many)
    # Six standard deviations of a share of 20,000 draws.
    np.testing.assert_allclose(counts, expected, atol=6 * 0.5 / np.sqrt(len(many)))
    again, _ = run("Sampling", settings, 2, **GPT, top_p=0.8, temperature=2.0)
    np.testing.assert_array_equal(again, written)


def test_sampling_with_little_mass_is_greedy() -> None:
    ids = text(np.random.default_rng(3), 4)
    drawn, _ = run("Sampling", [ids, one(9)], 2, **GPT, top_p=1e-6)
    np.testing.assert_array_equal(drawn, run("GreedySearch", [ids, one(9)], **GPT)[0])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([one(3)], "max_length is 3; expected more than the 5 tokens"),
        ([one(9), None, one(2), one(3)], "num_return_sequences is 3; expected 1 to num_beams, 2"),
    ],
)
def test_what_cannot_be_searched_is_refused(inputs: list[Any], message: str) -> None:
    ids = text(np.random.default_rng(4), 1)
    with pytest.raises(tenonnx.RuntimeException, match=message):
        run("BeamSearch", [ids, *inputs], **GPT)


def test_a_decoder_of_another_kind_is_refused() -> None:
    node = helper.make_node("Identity", ["tokens"], ["logits"])
    body = helper.make_graph(
        [node], "odd", [value("tokens", INT32, 1)], [value("logits", INT32, 1)]
    )
    assert isinstance(body, onnx.GraphProto)
    attributes = {**GPT, "decoder": body}
    with pytest.raises(tenonnx.RuntimeException, match="found one that takes tokens"):
        run("GreedySearch", [text(np.random.default_rng(5), 1), one(9)], **attributes)
