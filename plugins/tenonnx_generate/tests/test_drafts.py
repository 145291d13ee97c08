"""Drafted tokens: whatever is drafted, texts are the model's own."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folders import VOCABULARY, write_adapter, write_folder
from tenonnx_generate import Adapters, Config, Generator, GeneratorParams, Model
from tenonnx_generate.errors import Refused

PROMPT = [84, 104, 101, 32, 119, 105, 116, 104]


def write_draft(folder: Path, noise: float, seed: int = 0) -> Path:
    """Write a folder whose weights are those of ``write_folder`` with some noise."""
    write_folder(folder)
    proto = onnx.load(folder / "model.onnx")
    random = np.random.default_rng(seed)
    for each in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(each)
        if array.dtype == np.float32 and each.name not in ("cos", "sin"):
            changed = array + noise * array.std() * random.standard_normal(array.shape, np.float32)
            each.CopyFrom(onnx.numpy_helper.from_array(changed.astype(np.float32), each.name))
    onnx.save(proto, folder / "model.onnx")
    return folder


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory, model: Model) -> dict[str, Model | None]:
    """Models that draft: none, the model itself, one like it, and one that says other things."""
    folder = tmp_path_factory.mktemp("drafts")
    return {
        "none": None,
        "itself": model,
        "near": Model(write_draft(folder / "near", 0.02)),
        "random": Model(write_draft(folder / "random", 3.0)),
    }


def drafted(
    model: Model, draft: Model | None, speculative: Any = None, **options: Any
) -> Generator:
    params = GeneratorParams(model)
    params.set_search_options(**options)
    params.set_speculative_options(**(speculative or {}))
    params.set_draft_model(draft)
    return Generator(model, params)


def finished(made: Generator) -> list[int]:
    while not made.is_done():
        made.generate_next_token()
    return made.get_sequence(0).tolist()


SPECULATIVE = st.fixed_dictionaries({
    "max_draft_tokens": st.integers(1, 16), "min_adaptive_k": st.integers(0, 4),
    "cooldown": st.booleans(),
})  # fmt: skip
PATTERNS = st.fixed_dictionaries({
    "max_draft_tokens": st.integers(1, 16), "ngram_size": st.integers(2, 4),
    "ngram_chained_lookup": st.booleans(),
})  # fmt: skip
SEARCHES = st.sampled_from([
    {}, {"repetition_penalty": 1.4}, {"no_repeat_ngram_size": 2}, {"min_length": 30},
    {"past_present_share_buffer": False}, {"chunk_size": 3},
])  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_likeliest_text_is_the_models_own(
    model: Model, drafts: dict[str, Model | None], data: st.DataObject
) -> None:
    prompt = data.draw(st.lists(st.integers(0, 255), min_size=1, max_size=12))
    options = {"max_length": data.draw(st.integers(len(prompt), 48)), **data.draw(SEARCHES)}
    name = data.draw(st.sampled_from(sorted(drafts)))
    speculative = data.draw(PATTERNS if name == "none" else SPECULATIVE)
    plain, made = (
        drafted(model, None, None, **options),
        drafted(model, drafts[name], speculative, **options),
    )
    for each in (plain, made):
        each.append_tokens(prompt)
    while not plain.is_done():
        np.testing.assert_allclose(made.get_logits(), plain.get_logits(), atol=1e-4)
        for each in (plain, made):
            each.generate_next_token()
        assert made.get_next_tokens() == plain.get_next_tokens()
    assert made.is_done()


def test_a_model_accepts_what_it_drafts_itself(
    model: Model, drafts: dict[str, Model | None]
) -> None:
    made = drafted(model, model, {"max_draft_tokens": 5}, max_length=len(PROMPT) + 37)
    made.append_tokens(PROMPT)
    finished(made)
    told = made.get_speculative_stats()
    assert told["rounds"] == 6
    assert told["acceptance_rate"] == 1
    assert told["mean_emitted_tokens_per_round"] == 6
    assert told["draft_tokens_accepted"] == 30
    rates = {}
    for name in ("near", "random"):
        made = drafted(model, drafts[name], max_length=100, min_length=100)
        made.append_tokens(PROMPT)
        finished(made)
        told = made.get_speculative_stats()
        rates[name] = told["acceptance_rate"]
        kinds = ("draft_tokens_accepted", "correction_tokens", "bonus_tokens")
        assert sum(told[kind] for kind in (*kinds, "standard_fallback_steps")) == 92
    assert rates["near"] > 0.5 > 0.2 > rates["random"]


def test_a_text_that_is_changed_goes_on_as_ever(
    model: Model, drafts: dict[str, Model | None]
) -> None:
    random = np.random.default_rng(0)
    options: dict[str, Any] = {"max_length": 120}
    plain = drafted(model, None, **options)
    made = drafted(model, drafts["near"], {"max_draft_tokens": 6}, **options)
    for each in (plain, made):
        each.append_tokens(PROMPT)
    for _ in range(60):
        what, size = random.integers(6), int(random.integers(1, 5))
        tokens = random.integers(0, 255, size)
        if plain.token_count() + 10 > 120:
            what = 1
        for each in (plain, made):
            if what == 0:
                each.append_tokens(tokens)
            elif what == 1:
                each.rewind_to(each.token_count() - size)
            elif what == 2:
                each.set_logits(np.eye(VOCABULARY, dtype=np.float32)[[tokens[0]]])
                each.generate_next_token()
            else:
                for _ in range(size):
                    each.generate_next_token()
        np.testing.assert_allclose(made.get_logits(), plain.get_logits(), atol=1e-4)
        assert made.get_sequence(0).tolist() == plain.get_sequence(0).tolist()
        mine, its = (dict(each.get_next_logprobs(2)[0]) for each in (made, plain))
        assert mine == pytest.approx(its, abs=1e-4)
    assert made.get_speculative_stats()["draft_tokens_accepted"] > 20


@pytest.mark.parametrize("how", ["near", "random", "patterns"])
def test_what_is_drawn_has_its_chance(
    model: Model, drafts: dict[str, Model | None], how: str
) -> None:
    search = {"do_sample": True, "top_k": 3, "temperature": 1.5, "random_seed": 4}
    speculative = {"ngram_size": 2} if how == "patterns" else {}
    made = drafted(model, drafts.get(how), speculative, max_length=len(PROMPT) + 4, **search)
    made.append_tokens(PROMPT)
    counts: Counter[tuple[int, ...]] = Counter()
    runs = 1000
    for _ in range(runs):
        counts[tuple(finished(made)[len(PROMPT) :][:3])] += 1
        made.rewind_to(len(PROMPT))
    plain = drafted(model, None, max_length=len(PROMPT) + 4)

    def chances(after: list[int]) -> dict[int, float]:
        plain.rewind_to(0)
        plain.append_tokens([*PROMPT, *after])
        logits = plain.get_logits()[0, 0].astype(np.float64) / 1.5
        best = np.argsort(-logits)[:3]
        weights = np.exp(logits[best] - logits[best[0]])
        return dict(zip(best.tolist(), (weights / weights.sum()).tolist(), strict=True))

    expected = {
        (one, two, three): p * q * r
        for one, p in chances([]).items()
        for two, q in chances([one]).items()
        for three, r in chances([one, two]).items()
    }
    assert set(counts) <= set(expected)
    likely = [text for text, chance in expected.items() if chance * runs >= 5]
    square = sum(
        (counts[text] - expected[text] * runs) ** 2 / (expected[text] * runs) for text in likely
    )
    # With n degrees of freedom its mean is n and its deviation sqrt(2 n).
    assert square < len(likely) + 4 * np.sqrt(2 * len(likely))
    told = made.get_speculative_stats()
    assert how != "near" or 0 < told["acceptance_rate"] < 1


def test_a_text_that_is_held_to_an_expression(
    model: Model, drafts: dict[str, Model | None]
) -> None:
    pytest.importorskip("llguidance", reason="tenonnx-generate is not installed")
    texts = []
    for speculative, draft in [
        ({}, None), ({"max_draft_tokens": 6}, "itself"), ({}, "random"), ({"ngram_size": 2}, None),
    ]:  # fmt: skip
        params = GeneratorParams(model)
        params.set_search_options(max_length=60)
        params.set_speculative_options(**speculative)
        params.set_draft_model(drafts[draft] if draft else None)
        params.set_guidance("regex", "(ab|cd){5,12} [0-9]{3}")
        made = Generator(model, params)
        made.append_tokens(PROMPT)
        texts.append(finished(made))
        if draft == "itself":
            assert made.get_speculative_stats()["acceptance_rate"] == 1
    assert texts[1:] == texts[:1] * 3


def test_an_adapter_is_the_models_alone(tmp_path: Path) -> None:
    model = Model(write_folder(tmp_path / "folder", lora="empty"))
    adapters = Adapters(model)
    adapters.load(write_adapter(tmp_path / "one.onnx_adapter", 1), "one")
    texts = []
    for draft in (None, model):
        made = drafted(model, draft, max_length=40)
        made.append_tokens(PROMPT)
        for _ in range(7):
            made.generate_next_token()
        made.set_active_adapter(adapters, "one")
        texts.append(finished(made))
    assert texts[0] == texts[1]
    plain = drafted(model, None, max_length=40)
    plain.append_tokens(PROMPT)
    assert finished(plain) != texts[0]


def test_a_draft_with_less_context_drafts_as_far(tmp_path: Path, model: Model) -> None:
    short = Model(write_folder(tmp_path / "folder", model={"context_length": 32},
                               search={"max_length": 32}))  # fmt: skip
    plain, made = drafted(model, None, max_length=60), drafted(model, short, max_length=60)
    for each in (plain, made):
        each.append_tokens(PROMPT)
    assert finished(made) == finished(plain)
    assert 10 < made.get_speculative_stats()["draft_tokens_accepted"] < 32
    assert made.get_speculative_stats()["standard_fallback_steps"] > 20


def test_rounds_fit_what_is_accepted(model: Model, drafts: dict[str, Model | None]) -> None:
    wide = drafted(model, model, {"min_adaptive_k": 2}, max_length=100)
    narrow = drafted(
        model, drafts["random"], {"min_adaptive_k": 2, "cooldown": True}, max_length=100
    )
    for each in (wide, narrow):
        each.append_tokens(PROMPT)
        finished(each)
    told = wide.get_speculative_stats()
    assert told["effective_k"] > 8
    assert told["rounds"] < 12
    told = narrow.get_speculative_stats()
    assert told["effective_k"] == 2
    assert told["standard_fallback_steps"] > 10


def test_a_folder_may_name_its_draft(tmp_path: Path, model: Model) -> None:
    folder = write_folder(tmp_path / "folder")
    shutil.copy(folder / "model.onnx", folder / "draft.onnx")
    config = Config(folder)
    section = {**config.document["model"]["decoder"], "filename": "draft.onnx"}
    overlay = {"model": {"draft": section}, "speculative": {"max_draft_tokens": 3}}
    config.overlay(json.dumps(overlay))
    drafting = Model(config)
    params = GeneratorParams(drafting)
    params.set_search_options(max_length=40)
    assert params.get_speculative_options()["max_draft_tokens"] == 3
    made, plain = Generator(drafting, params), drafted(model, None, max_length=40)
    for each in (made, plain):
        each.append_tokens(PROMPT)
    assert finished(made) == finished(plain)
    assert made.get_speculative_stats()["acceptance_rate"] == 1
    assert made.get_speculative_stats()["avg_draft_tokens_per_round"] > 2
    params.set_draft_model(None)
    assert type(Generator(drafting, params)) is Generator
    assert plain.get_speculative_stats()["rounds"] == 0


def test_models_that_draft_nothing_have_one_session(folder: Path) -> None:
    own = Model(folder)
    made = drafted(own, None, max_length=20)
    made.append_tokens(PROMPT)
    finished(made)
    assert "whole_session" not in vars(own)


@pytest.mark.parametrize(("options", "said"), [
    ({"no_such": 1}, "there is no speculative option 'no_such'"),
    ({"max_draft_tokens": 17}, "max_draft_tokens is 17; expected one from 1 to 16"),
    ({"max_draft_tokens": 1.5}, "expected a whole number"), ({"cooldown": 1}, "True or False"),
    ({"ngram_size": 1}, "ngram_size is 1"), ({"ngram_chained_lookup": True}, "wants ngram_size"),
])  # fmt: skip
def test_options_that_cannot_be(model: Model, options: Any, said: str) -> None:
    params = GeneratorParams(model)
    before = params.get_speculative_options()
    with pytest.raises(Refused, match=said):
        params.set_speculative_options(**{"min_adaptive_k": 3, **options})
    assert params.get_speculative_options() == before


def test_drafts_that_cannot_be(tmp_path: Path, model: Model) -> None:
    params = GeneratorParams(model)
    fewer = Model(write_folder(tmp_path / "fewer", model={"vocab_size": VOCABULARY - 1}))
    with pytest.raises(Refused, match=f"has {VOCABULARY - 1} tokens, and the model {VOCABULARY}"):
        params.set_draft_model(fewer)
    other = write_folder(tmp_path / "other")
    told = json.loads((other / "tokenizer.json").read_text())
    vocabulary = told["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (other / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(Refused, match="are other texts"):
        params.set_draft_model(Model(other))
    params.set_draft_model(model)
    for name in ("batch_size", "num_beams"):
        params.set_search_options(**{"batch_size": 1, name: 2})
        with pytest.raises(Refused, match=f"{name} is 2"):
            Generator(model, params)
    params.set_search_options(batch_size=1, num_beams=1)
    params.set_speculative_options(ngram_size=3)
    with pytest.raises(Refused, match="one of them drafts"):
        Generator(model, params)
    wrong = Config(other)
    wrong.document["speculative"] = 3
    with pytest.raises(Refused, match=r"speculative in genai_config\.json is 3"):
        GeneratorParams(Model(wrong))
