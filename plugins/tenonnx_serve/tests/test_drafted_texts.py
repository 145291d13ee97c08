"""Texts that have a thread each: of drafted tokens, which change none, and of states."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="tenonnx-serve is not installed")
pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")

from folders import write_hybrid
from language import CHAT, COMPLETIONS, MESSAGES, events, folder_with
from servers import Running, serving
from tenonnx_generate import Generator, GeneratorParams, Model, Tokenizer
from tenonnx_serve import config
from tenonnx_serve.openai.language_model import LanguageModel
from tenonnx_serve.settings import Limits, Settings

GREEDY = {"max_tokens": 20, "temperature": 0}


def drafting(folder: Path, **speculative: Any) -> Path:
    """Write a folder that says how tokens are drafted: by patterns, or by its own graph."""
    file = folder_with(folder) / "genai_config.json"
    said = json.loads(file.read_text())
    said["speculative"] = speculative
    if "ngram_size" not in speculative:
        said["model"]["draft"] = said["model"]["decoder"]
    file.write_text(json.dumps(said))
    return folder


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("models")
    folder_with(root / "tiny")
    write_hybrid(root / "hybrid")
    drafting(root / "patterns", ngram_size=2)
    drafting(root / "itself", max_draft_tokens=3)
    settings = Settings(
        str(root), port=0, grpc_port=None, limits=Limits(waiting=4, seconds=20), drafts=True
    )
    with serving(settings) as found:
        yield found


def tokens(running: Running, model: str) -> dict[str, int]:
    return dict(running.server.core.counts.texts_of(model, "1").tokens)


@pytest.mark.parametrize("model", ["patterns", "itself"])
def test_drafts_change_no_text(running: Running, model: str) -> None:
    before = tokens(running, model)
    for asked in (
        {"prompt": "The with", "max_tokens": 40, "temperature": 0},
        {"prompt": "The with", "max_tokens": 6, "temperature": 0, "echo": True, "logprobs": 2},
        {"prompt": "The with", "max_tokens": 9, "temperature": 0, "min_tokens": 9, "n": 2},
    ):
        plain, drafted = (
            running.call("POST", COMPLETIONS, {"model": name, **asked})[1]["choices"]
            for name in ("tiny", model)
        )
        assert [one["text"] for one in drafted] == [one["text"] for one in plain]
        if "logprobs" in asked:
            found, expected = (one[0]["logprobs"]["token_logprobs"][1:] for one in (drafted, plain))
            assert found == pytest.approx(expected, abs=1e-4)
    after = tokens(running, model)
    assert 0 < after["accepted"] - before["accepted"] <= after["drafted"] - before["drafted"]
    assert after["generated"] - before["generated"] <= 64


def test_a_drafted_chat_is_streamed(running: Running) -> None:
    texts = [
        "".join(
            event["choices"][0]["delta"].get("content", "")
            for event in events(running, CHAT, {"model": name, "messages": MESSAGES, **GREEDY})
        )
        for name in ("tiny", "itself")
    ]
    assert texts[0] == texts[1]


def test_a_model_with_states_is_served(running: Running) -> None:
    model = Model(f"{running.settings.source}/hybrid")
    params = GeneratorParams(model)
    params.set_search_options(max_length=28, do_sample=False)
    made = Generator(model, params)
    made.append_tokens(Tokenizer(model).encode("The with"))
    while not made.is_done():
        made.generate_next_token()
    asked = {"model": "hybrid", "prompt": "The with", **GREEDY}
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: running.call("POST", COMPLETIONS, asked), range(3)))
    expected = Tokenizer(model).decode(made.get_sequence(0)[8:])
    assert [said["choices"][0]["text"] for _, said, _ in answers] == [expected] * 3


def test_a_folder_drafts_only_if_asked_to(tmp_path: Path) -> None:
    folder = drafting(tmp_path / "patterns", ngram_size=2)
    for asked in (False, True):
        model = LanguageModel("m", "1", folder, Settings("", drafts=asked), config.empty())
        assert model.drafts == model.params().drafts == asked
    plain = LanguageModel(
        "m", "1", folder_with(tmp_path), Settings("", drafts=True), config.empty()
    )
    assert not plain.drafts
