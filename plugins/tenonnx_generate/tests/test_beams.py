"""Beams against a search that runs whole sequences, and against all sequences there are."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from folders import EOS, VOCABULARY, write_adapter, write_folder
from sources import ROOT
from tenonnx_generate import (
    Adapters,
    Config,
    Engine,
    Generator,
    GeneratorParams,
    Model,
    Tokenizer,
    TurnOptions,
)
from tenonnx_generate.decoder import Decoder
from tenonnx_generate.errors import Refused, Unsupported

EXAMPLE = ROOT / "examples" / "generate" / "model"
# A token that the example model writes often; here it ends texts.
ENDS = 264

ENDS_BYTES = 224

PROMPT = [84, 104, 101]

Run = Callable[[list[int]], Any]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The example with weights of 32 bits: sums differ by rounding alone, however they are run."""
    folder = tmp_path_factory.mktemp("beams") / "example"
    shutil.copytree(EXAMPLE, folder)
    proto = onnx.load(folder / "model.onnx")
    graph = proto.graph
    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    for each in list(graph.node):
        if each.op_type != "DequantizeLinear" or each.input[0] not in arrays:  # of the embedding
            continue
        axis = next((one.i for one in each.attribute if one.name == "axis"), 1)
        whole, *parts = (arrays[name].astype(np.float32) for name in each.input)
        spread = [
            np.repeat(part, whole.shape[axis] // part.shape[axis], axis)
            if part.ndim == whole.ndim
            else part.reshape([-1 if place == axis else 1 for place in range(whole.ndim)])
            for part in parts
        ]
        made = (whole - (spread[1] if len(spread) > 1 else 0)) * spread[0]
        graph.initializer.append(onnx.numpy_helper.from_array(made, each.output[0]))
        graph.node.remove(each)
    onnx.save(proto, folder / "model.onnx")
    config = Config(folder)
    config.overlay(json.dumps({"model": {"eos_token_id": ENDS}}))
    return Model(config)


@pytest.fixture(scope="module")
def prompts(example: Model) -> list[list[int]]:
    tokenizer = Tokenizer(example)
    texts = ["The with statement", "A list is", "If the object"]
    return [tokenizer.encode(text).tolist() for text in texts]


@pytest.fixture(scope="module")
def bytewise(folder: Path) -> Model:
    """A model whose caches stay in place or grow, as callers like."""
    config = Config(folder)
    config.overlay(json.dumps({"model": {"eos_token_id": ENDS_BYTES}}))
    return Model(config)


def whole_runs(model: Model) -> Run:
    """The logits that follow tokens, of runs without caches."""
    session = tenonnx.InferenceSession(model.description.path)
    known: dict[tuple[int, ...], Any] = {}

    def run(tokens: list[int]) -> Any:
        if tuple(tokens) not in known:
            # The example writes into caches; GroupQueryAttention makes new ones.
            room = len(tokens) * (model.description.vocabulary != VOCABULARY)
            feeds: dict[str, Any] = {}
            for arg in session.get_inputs():
                integers = np.int32 if "int32" in arg.type else np.int64
                feeds[arg.name] = (
                    np.zeros(model.cache_shape(arg.name, 1, room), np.float32)
                    if arg.name in model.caches
                    else np.array([tokens], integers) if arg.name == "input_ids"
                    else np.arange(len(tokens), dtype=integers)[None] if "position" in arg.name
                    else np.ones((1, len(tokens)), integers)
                )  # fmt: skip
            known[tuple(tokens)] = session.run(["logits"], feeds)[0][0, -1]
        return known[tuple(tokens)]

    return run


def logs(logits: Any) -> Any:
    """The logarithms of the probabilities that logits mean."""
    wide = logits.astype(np.float64)
    return wide - np.log(np.exp(wide).sum())


def reference(
    run: Run, prompt: list[int], limit: int, eos: int, beams: int, *, early: bool, penalty: float
) -> list[list[int]]:
    """Search without caches; return texts, the best first."""
    live, ended = [(0.0, prompt)], list[tuple[float, list[int]]]()
    while len(live[0][1]) < limit:
        totals = np.stack([total + logs(run(tokens)) for total, tokens in live])
        best = np.argsort(-totals, axis=None, kind="stable")[: 2 * beams]
        places = [divmod(int(place), totals.shape[1]) for place in best]
        steps = [(float(totals[place]), live[place[0]][1], place[1]) for place in places]
        length, live = len(live[0][1]), []
        for place, (total, tokens, token) in enumerate(steps):
            if token == eos and place < beams:
                ended.append((total / length**penalty, tokens))
            elif token != eos and len(live) < beams:
                live.append((total, [*tokens, token]))
                if len(live) == beams:
                    break
        ended = sorted(ended, key=lambda each: -each[0])[:beams]
        if len(ended) == beams and (early or ended[-1][0] >= steps[0][0] / length**penalty):
            return [tokens for _, tokens in ended]
    ended += [(total / len(tokens) ** penalty, tokens) for total, tokens in live]
    return [tokens for _, tokens in sorted(ended, key=lambda each: -each[0])[:beams]]


def searching(model: Model, prompt: Any, **options: Any) -> Generator:
    params = GeneratorParams(model)
    params.set_search_options(**options)
    made = Generator(model, params)
    made.append_tokens(prompt)
    return made


def found(made: Generator, count: int = 1) -> list[list[int]]:
    while not made.is_done():
        made.generate_next_token()
    return [made.get_sequence(place).tolist() for place in range(count)]


CASES = [
    (2, True, 1.0, 10), (4, True, 1.0, 12), (4, False, 1.0, 12), (3, True, -1.0, 10),
    (5, False, 3.0, 8), (8, True, 0.5, 6),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["example", "in place", "grown"])
@pytest.mark.parametrize(("beams", "early", "penalty", "more"), CASES)
def test_texts_are_those_of_whole_sequences(
    example: Model, bytewise: Model, prompts: list[list[int]], kind: str, beams: int, early: bool,
    penalty: float, more: int,
) -> None:  # fmt: skip
    ends, model = 0, example if kind == "example" else bytewise
    run = whole_runs(model)
    for prompt in prompts if kind == "example" else ([84, 104, 101], [9, 8], [7]):
        limit, eos = len(prompt) + more, model.description.eos[0]
        expected = reference(run, prompt, limit, eos, beams, early=early, penalty=penalty)
        made = searching(
            model, prompt, num_beams=beams, num_return_sequences=beams, early_stopping=early,
            length_penalty=penalty, max_length=limit, past_present_share_buffer=kind != "grown",
        )  # fmt: skip
        assert found(made, beams) == expected
        ends += sum(len(tokens) < limit for tokens in expected)
    assert ends or beams in (2, 5)  # which find none before the limit, or rank it lower


def test_many_beams_find_the_likeliest_of_all_texts(model: Model) -> None:
    run, size = whole_runs(model), len(PROMPT) + 2

    def follow(tokens: list[int]) -> Any:
        logits = run(tokens).copy()
        logits[EOS] = -np.inf  # the least length has two tokens more
        return logs(logits)

    totals = follow(PROMPT)[:, None] + [follow([*PROMPT, each]) for each in range(VOCABULARY)]
    best = np.argsort(-totals, axis=None)[:20]
    expected = [[*PROMPT, *divmod(int(place), VOCABULARY)] for place in best]
    count = {"num_beams": VOCABULARY, "num_return_sequences": 20}
    made = searching(model, PROMPT, min_length=size, max_length=size, **count)
    assert found(made, 20) == expected


@pytest.mark.parametrize("in_place", [True, False])
def test_sequences_of_a_batch_are_as_alone(bytewise: Model, in_place: bool) -> None:
    prompts = [[84, 104, 101], [9, 8], [7]]
    options = {"num_beams": 4, "num_return_sequences": 2, "max_length": 24}
    options["past_present_share_buffer"] = in_place
    alone = [found(searching(bytewise, prompt, **options), 2) for prompt in prompts]
    assert len({len(tokens) for each in alone for tokens in each}) > 1
    padded = np.full((3, max(map(len, prompts))), bytewise.description.pad)
    for row, prompt in zip(padded, prompts, strict=True):
        row[: len(prompt)] = prompt
    made = searching(bytewise, padded, batch_size=3, **options)
    assert found(made, 6) == [tokens for each in alone for tokens in each]
    with pytest.raises(Refused, match="there is no sequence 6: there are 6"):
        made.get_sequence(6)


@pytest.mark.parametrize(("prompt", "options"), [
    ([9, 8], {"min_length": 16}), (PROMPT, {"no_repeat_ngram_size": 2}),
    (PROMPT, {"repetition_penalty": 1.5}),
])  # fmt: skip
def test_penalties_hold_for_each_beam(
    bytewise: Model, prompt: list[int], options: dict[str, Any]
) -> None:
    count = {"num_beams": 4, "num_return_sequences": 4, "max_length": 40}
    texts = found(searching(bytewise, prompt, **count, **options), 4)
    assert texts != found(searching(bytewise, prompt, **count), 4)
    for tokens in texts:
        assert len(tokens) >= options.get("min_length", 0)
        pairs = list(itertools.pairwise(tokens))
        assert len(set(pairs)) == len(pairs) or "no_repeat_ngram_size" not in options


def test_texts_keep_to_what_they_are_held_to(prompts: list[list[int]]) -> None:
    pytest.importorskip("llguidance", reason="tenonnx-generate is not installed")
    example = Model(EXAMPLE)
    params = GeneratorParams(example)
    params.set_search_options(num_beams=4, num_return_sequences=4, max_length=40)
    params.set_guidance("regex", " (the|an|is)( [a-z]{1,5}){1,3}")
    made = Generator(example, params)
    for _ in range(2):
        made.append_tokens(prompts[0])
        texts = [tokens[len(prompts[0]) :] for tokens in found(made, 4)]
        written = [Tokenizer(example).decode(tokens) for tokens in texts]
        assert len(set(map(tuple, texts))) == 4
        for text in written:
            assert re.fullmatch(" (the|an|is)( [a-z]{1,5}){1,3}", text), text
        made.rewind_to(0)
    params.set_guidance("regex", "[ab]")
    made = Generator(example, params)
    made.append_tokens(prompts[0])
    written = [Tokenizer(example).decode(tokens[-1:]) for tokens in found(made, 2)]
    assert sorted(written) == ["a", "b"]
    with pytest.raises(Refused, match="the search found 2"):
        made.get_sequence(2)


def test_what_differs_is_copied_and_nothing_else(
    example: Model, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[tuple[int, int]] = []
    copy = Decoder.copy

    def counting(self: Decoder, source: int, target: int, length: int, same: int = 0) -> None:
        copied.append((length, length - same))
        copy(self, source, target, length, same)

    monkeypatch.setattr(Decoder, "copy", counting)
    prompt = prompts[0] * 12
    made: Any = searching(example, prompt, num_beams=4, max_length=len(prompt) + 40, min_length=99)
    steps = 0
    while not made.is_done():
        made.generate_next_token()
        steps += 1
        row = made._groups[0].going[0]
        mine = made.get_logits()[0, 0]
        if steps % 13 == 0:
            tokens = made._sequence(row).tolist()
            np.testing.assert_allclose(mine, whole_runs(example)(tokens), atol=1e-3)
    # Three rows get the prompt, once.
    assert [new for _, new in copied[:3]] == [len(prompt)] * 3
    later = copied[3:]
    assert later
    assert sum(new for _, new in later) < sum(length for length, _ in later) / 5
    assert max(new for _, new in later) <= 40


def test_logits_and_tokens_are_by_beam(model: Model) -> None:
    made = searching(model, PROMPT, num_beams=3, max_length=12)
    logits = made.get_logits()
    assert logits.shape == (3, 1, VOCABULARY)
    np.testing.assert_array_equal(logits[0], logits[2])
    made.generate_next_token()
    best = np.argsort(-logits[0, 0])[:3]
    assert made.get_next_tokens().tolist() == best.tolist()
    for place, tokens in enumerate(made.get_next_logprobs(1)):
        assert tokens[0][0] == best[place]
        assert tokens[1][0] == best[0]
    ids = np.full((3, VOCABULARY), -50, np.float32)
    ids[0, 5] = ids[1, 7] = ids[2, 9] = 50
    made.set_logits(ids)
    made.generate_next_token()
    assert made.get_next_tokens().tolist() == [5, 7, 9]
    assert made.get_sequence(0).tolist() == [*PROMPT, best[0], 5]
    assert made.token_count() == 5


def test_back_to_the_prompt_and_on(model: Model) -> None:
    made = searching(model, PROMPT[:1], num_beams=3, max_length=20)
    made.append_tokens(PROMPT[1:])
    first = found(made)
    with pytest.raises(Refused, match="beams have parted"):
        made.append_tokens([1])
    with pytest.raises(Refused, match="the beams part after 3 tokens"):
        made.rewind_to(4)
    with pytest.raises(Refused, match="ask is_done"):
        made.generate_next_token()
    for length in (3, 2, 0):
        made.rewind_to(length)
        assert made.token_count() == length
        if length < 3:
            made.append_tokens(PROMPT[length:])
        assert found(made) == first
    made.rewind_to(1)
    made.append_tokens([9, 8])
    assert found(made) == found(searching(model, [PROMPT[0], 9, 8], num_beams=3, max_length=20))


def test_beams_run_with_an_adapter(tmp_path: Path) -> None:
    model = Model(write_folder(tmp_path / "folder", lora="empty"))
    adapters = Adapters(model)
    adapters.load(write_adapter(tmp_path / "one.onnx_adapter", 1), "one")
    texts = []
    for adapted in (False, True):
        params = GeneratorParams(model)
        params.set_search_options(num_beams=3, max_length=14)
        made = Generator(model, params)
        if adapted:
            made.set_active_adapter(adapters, "one")
        made.append_tokens(PROMPT)
        texts.append(found(made))
    assert texts[0] != texts[1]


@pytest.mark.parametrize(("options", "said"), [
    ({"num_beams": 3, "num_return_sequences": 4}, "expected at most num_beams, 3"),
    ({"num_return_sequences": 2}, "expected at most num_beams, 1"),
    ({"num_beams": 2, "do_sample": True}, "do_sample draws them"),
    ({"num_beams": 600, "batch_size": 2}, "are more than 1024 rows"),
])  # fmt: skip
def test_options_that_cannot_be(model: Model, options: Any, said: str) -> None:
    params = GeneratorParams(model)
    params.set_search_options(**options)
    with pytest.raises(Refused, match=said):
        Generator(model, params)


def test_an_engine_has_no_beams(tmp_path: Path, model: Model) -> None:
    beams = Model(write_folder(tmp_path / "folder", search={"num_beams": 2}))
    with pytest.raises(Unsupported, match="num_beams 2"):
        Engine(beams)
    with Engine(model).create_request() as request:
        options = TurnOptions(request)
        with pytest.raises(Refused, match="a turn has no search option 'num_beams'"):
            options.set_search_options(num_beams=2)


def test_logits_that_are_no_numbers_are_an_error(model: Model) -> None:
    made = searching(model, PROMPT, num_beams=2, max_length=12)
    made.set_logits(np.full((2, VOCABULARY), np.nan))
    with pytest.raises(tenonnx.RuntimeException, match="no numbers"):
        made.generate_next_token()
