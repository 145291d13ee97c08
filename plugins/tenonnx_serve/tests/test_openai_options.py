"""Fields of OpenAI's and vLLM's that say how tokens are chosen, and what is told of them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("msgspec", reason="tenonnx-serve is not installed")
pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
pytest.importorskip("llguidance", reason="tenonnx-generate is not installed")

from folders import write_adapter, write_folder
from language import CHAT, COMPLETIONS, MESSAGES, events, folder_with
from servers import Running, serving
from tenonnx.cli import memory
from tenonnx_generate import Generator, GeneratorParams, Model, Tokenizer
from tenonnx_serve.openai.language_model import fitting_rows
from tenonnx_serve.settings import Limits, Settings

GREEDY = {"model": "tiny", "prompt": "The with", "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("models")
    folder_with(root / "tiny")
    folder_with(root / "grows")
    config = root / "grows" / "genai_config.json"
    config.write_text(
        config.read_text().replace(
            '"past_present_share_buffer": true', '"past_present_share_buffer": false'
        )
    )
    write_folder(root / "lora", lora="empty")
    (root / "lora" / "adapters").mkdir()
    for seed, name in enumerate(("poems", "code")):
        write_adapter(root / "lora" / "adapters" / f"{name}.onnx_adapter", seed)
    limits = Limits(waiting=4, seconds=20)
    with serving(Settings(str(root), port=0, grpc_port=None, limits=limits)) as found:
        yield found


def complete(running: Running, **asked: Any) -> Any:
    status, found, _ = running.call("POST", COMPLETIONS, {**GREEDY, **asked})
    assert status == 200, found
    return found["choices"][0]


def logits_after(running: Running, tokens: list[int], model: str = "tiny") -> Any:
    opened = Model(f"{running.settings.source}/{model}")
    params = GeneratorParams(opened)
    generator = Generator(opened, params)
    generator.append_tokens(tokens)
    return generator.get_logits()[0, 0].astype(np.float64)


def test_biases_and_tokens_that_end_a_text(running: Running) -> None:
    assert complete(running, logit_bias={"65": 100})["text"] == "A" * 8
    ended = complete(running, logit_bias={"65": 100}, stop_token_ids=[65])
    assert (ended["text"], ended["finish_reason"]) == ("", "stop")
    later = complete(running, logit_bias={"65": 100}, stop_token_ids=[65], min_tokens=3)
    assert later["finish_reason"] == "stop"


def test_penalties_are_those_of_the_library(running: Running) -> None:
    model = Model(f"{running.settings.source}/tiny")
    penalties = {"frequency_penalty": 2.0, "presence_penalty": -1.5, "repetition_penalty": 1.2}
    params = GeneratorParams(model)
    params.set_search_options(max_length=56, do_sample=False, **penalties)
    generator = Generator(model, params)
    generator.append_tokens(list(b"The with"))
    while not generator.is_done():
        generator.generate_next_token()
    expected = Tokenizer(model).decode(generator.get_sequence(0)[8:])
    assert complete(running, max_tokens=48, **penalties)["text"] == expected
    assert complete(running, max_tokens=48)["text"] != expected


def test_min_p_and_top_k_leave_the_likeliest(running: Running) -> None:
    greedy = complete(running)["text"]
    for narrow in ({"min_p": 1.0}, {"top_k": 1}, {"top_p": 1e-9}):
        assert complete(running, temperature=2, seed=1, **narrow)["text"] == greedy


@pytest.mark.parametrize("model", ["tiny", "grows"])
def test_prompts_have_logprobs_when_they_are_echoed(running: Running, model: str) -> None:
    asked = {"model": model, "prompt": list(b"The with"), "echo": True, "logprobs": 2}
    found = complete(running, **asked, max_tokens=2)
    told = found["logprobs"]
    assert told["tokens"][:8] == list("The with")
    assert told["text_offset"][:8] == list(range(8))
    assert (told["token_logprobs"][0], told["top_logprobs"][0]) == (None, None)
    assert len(told["token_logprobs"]) == 10
    for count in (1, 4, 8):
        logits = logits_after(running, list(b"The with")[:count], model)
        expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        best = max(told["top_logprobs"][count].values())
        assert best == pytest.approx(expected.max(), abs=2e-4)
        if count < 8:
            chance = expected[b"The with"[count]]
            assert told["token_logprobs"][count] == pytest.approx(chance, abs=2e-4)
    none = complete(running, **asked, max_tokens=0)
    assert (none["text"], none["finish_reason"]) == ("The with", "length")
    assert none["logprobs"]["token_logprobs"][1:] == pytest.approx(
        told["token_logprobs"][1:8], abs=2e-4
    )
    chunks = events(running, COMPLETIONS, {**GREEDY, **asked, "max_tokens": 0})
    assert "".join(c["choices"][0]["text"] for c in chunks) == "The with"
    assert chunks[0]["choices"][0]["logprobs"]["tokens"] == list("The with")


@pytest.mark.parametrize(("guided", "pattern"), [
    ({"guided_regex": "[ab]{3}c"}, "[ab]{3}c"),
    ({"structured_outputs": {"regex": "[ab]{3}c"}}, "[ab]{3}c"),
    ({"guided_choice": ["yes", 'n"o']}, 'yes|n"o'),
    ({"guided_grammar": 'start: "x" ("y" | "z") "x"'}, "x[yz]x"),
    ({"guided_json": {"enum": [{"a": [1, 2]}]}}, re.escape('{"a":[1,2]}')),
])  # fmt: skip
def test_texts_are_held_to_a_form(running: Running, guided: Any, pattern: str) -> None:
    for how in ({}, {"temperature": 1, "seed": 3}):
        found = complete(running, **guided, **how, max_tokens=30)
        assert re.fullmatch(pattern, found["text"]), found
        said = {"model": "tiny", "messages": MESSAGES, "max_tokens": 30, **guided, **how}
        _, answered, _ = running.call("POST", CHAT, said)
        assert re.fullmatch(pattern, answered["choices"][0]["message"]["content"]), answered


def test_answers_under_a_schema_have_no_blanks(running: Running) -> None:
    properties = {"a": {"type": "integer", "maximum": 9, "minimum": 0}, "b": {"const": [1, 2]}}
    schema = {"type": "object", "properties": properties, "required": ["a", "b"]}
    schema["additionalProperties"] = False
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    said = {"model": "tiny", "messages": MESSAGES, "max_tokens": 40, "response_format": form}
    _, found, _ = running.call("POST", CHAT, said)
    text = found["choices"][0]["message"]["content"]
    assert text == json.dumps(json.loads(text), separators=(",", ":"))


def test_adapters_are_models_of_their_own(running: Running) -> None:
    _, found, _ = running.call("GET", "/v1/models")
    names = [each["id"] for each in found["data"]]
    assert names == ["grows", "lora", "lora:code", "lora:poems", "tiny"]
    texts = {name: complete(running, model=name)["text"] for name in names[1:4]}
    assert len(set(texts.values())) == 3
    _, found, _ = running.call("POST", COMPLETIONS, {**GREEDY, "model": "lora:poems"})
    assert found["model"] == "lora:poems"
    for wrong in ("lora:none", "tiny:code", "lora:", ":code"):
        status, found, _ = running.call("POST", COMPLETIONS, {**GREEDY, "model": wrong})
        assert (status, found["error"]["code"]) == (404, "model_not_found")


def test_salts_part_the_caches_of_clients(running: Running) -> None:
    prompt = list(b"a prompt that several clients have")

    def cached(salt: str) -> int:
        served = running.server.core.repository.find_language("tiny")
        engine = served._engine._engine  # type: ignore[attr-defined]
        slots = engine._slots
        tokens = np.array(prompt, np.int32)
        return max(slots._common(row, tokens, (0, salt)) for row in range(len(slots._slots)))

    complete(running, prompt=prompt, cache_salt="mine")
    assert cached("mine") >= len(prompt) - 1
    assert cached("yours") == 0
    assert cached("") < len(prompt) - 1


def test_rows_are_sized_to_memory(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    model = running.server.core.repository.find_language("tiny").model
    row = 2 * 2 * 2 * 512 * 16 * 4  # layers, keys and values, heads, tokens, sizes, bytes
    monkeypatch.setattr(memory, "cgroup_limit", lambda: 4 * 7 * row)
    for free, rows in ((None, 1), ((0, 0), 1), ((9, 4 * 5 * row), 5), ((9, 1 << 40), 7)):
        monkeypatch.setattr(memory, "total", lambda free=free: free)
        assert fitting_rows(model.model, 512) == rows
    monkeypatch.setattr(memory, "cgroup_limit", lambda: None)
    assert fitting_rows(model.model, 512) == 32


def test_unknown_fields_are_ignored_where_the_server_is_told(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, found, _ = running.call("POST", COMPLETIONS, {**GREEDY, "min_q": 1})
    assert (status, found["error"]["param"]) == (400, "min_q")
    assert "did you mean 'min_p'" in found["error"]["message"]
    core = running.server.core
    settings = dataclasses.replace(core.settings, ignores_unknown=True)
    monkeypatch.setattr(core, "settings", settings)
    assert complete(running, min_q=1, suffix="x")["text"]
