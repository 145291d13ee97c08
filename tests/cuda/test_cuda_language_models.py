"""Language models on the stand-in for a device: their caches stay there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import emulated
import pytest
from kernel_calls import needs_compiler
from typer.testing import CliRunner

from encoders import START, write_encoded
from folders import write_folder
from tenonnx import PluginSet
from tenonnx.cli.app import app
from tenonnx.plugins import manager
from tenonnx_generate import (
    Engine,
    Generator,
    GeneratorParams,
    Model,
    TurnOptions,
)

pytestmark = needs_compiler

PROMPT = [84, 104, 101, 32, 119, 105]

FORMS: list[dict[str, Any]] = [
    {},
    {"past_present_share_buffer": False},
    {"chunk_size": 3},
    {"num_beams": 3, "early_stopping": False},
    {"num_beams": 2, "past_present_share_buffer": False},
]


def on_device(folder: Path, **options: str) -> Path:
    """Ask for the stand-in in a folder's configuration."""
    path = folder / "genai_config.json"
    config = json.loads(path.read_text())
    listed = [{emulated.EmulatedProvider.name: options}]
    config["model"]["decoder"].setdefault("session_options", {})["provider_options"] = listed
    path.write_text(json.dumps(config))
    return folder


@pytest.fixture(autouse=True)
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = PluginSet()
    plugins.register(emulated.Plugin())
    monkeypatch.setattr(manager, "_default", plugins)


@pytest.fixture(params=[{}, {"enable_cuda_graph": "1"}], ids=["eager", "recorded"])
def models(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Model, Model]:
    """One on the host, and the same one on the device."""
    here = write_folder(tmp_path / "host")
    there = on_device(write_folder(tmp_path / "device"), **request.param)
    return Model(here), Model(there)


def said(model: Model, **options: Any) -> list[int]:
    params = GeneratorParams(model)
    params.set_search_options(max_length=len(PROMPT) + 12, **options)
    made = Generator(model, params)
    made.append_tokens(PROMPT)
    while not made.is_done():
        made.generate_next_token()
    return made.get_sequence(0).tolist()


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_texts_are_those_of_the_host(models: tuple[Model, Model], options: dict[str, Any]) -> None:
    host, device = models
    assert (host.device_type, device.device_type) == ("cpu", "cuda")
    assert said(device, **options) == said(host, **options)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_token_moves_its_logits_and_no_cache(models: tuple[Model, Model], in_place: bool) -> None:
    _, device = models
    params = GeneratorParams(device)
    params.set_search_options(max_length=64, past_present_share_buffer=in_place)
    made = Generator(device, params)
    made.append_tokens(PROMPT)
    for _ in range(3):
        made.generate_next_token()
    log = emulated.EmulatedProvider.where.log
    log.clear()
    made.generate_next_token()
    moved = [entry for entry in log if entry[0] in ("to_device", "to_host")]
    assert [entry[0] for entry in moved].count("to_host") == 1
    assert len(moved) <= 4  # and the token, its mask


def test_rewound_and_continued(models: tuple[Model, Model]) -> None:
    texts = []
    for model in models:
        params = GeneratorParams(model)
        params.set_search_options(max_length=40)
        made = Generator(model, params)
        made.append_tokens(PROMPT)
        for _ in range(5):
            made.generate_next_token()
        made.rewind_to(4)
        made.append_tokens([7, 8])
        for _ in range(5):
            made.generate_next_token()
        texts.append(made.get_sequence(0).tolist())
    assert texts[0] == texts[1]


def turns(model: Model) -> list[list[int]]:
    """Texts in a batch that is smaller than they are many; some begin as others do."""
    engine = Engine(model, max_batch_size=3)
    found = []
    for prompts in (
        [PROMPT, [7, 8, 9], [*PROMPT[:4], 1, 2], [3]],
        [[*PROMPT, 5], [200], PROMPT],
    ):
        requests = [engine.create_request() for _ in prompts]
        for request, prompt in zip(requests, prompts, strict=True):
            options = TurnOptions(request)
            options.set_max_generated_tokens(3 * len(prompt))
            request.begin_turn(prompt, options)
        buffer = engine.create_event_buffer(3)
        while engine.has_pending_requests():
            engine.run(buffer)
        found += [request.tokens.tolist() for request in requests]
    return found


def test_texts_of_a_batch_are_those_of_the_host(models: tuple[Model, Model]) -> None:
    host, device = models
    assert turns(device) == turns(host)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_model_with_an_encoder_says_the_same(tmp_path: Path, beams: int) -> None:
    texts = []
    for name in ("host", "device"):
        folder = write_encoded(tmp_path / name, text=True)
        model = Model(on_device(folder) if name == "device" else folder)
        params = GeneratorParams(model)
        params.set_search_options(max_length=20, num_beams=beams)
        made = Generator(model, params)
        made.append_tokens(START)
        while not made.is_done():
            made.generate_next_token()
        texts.append(made.get_sequence(0).tolist())
    assert texts[0] == texts[1]


def test_the_command_names_a_provider(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
    folder = write_folder(tmp_path / "folder")
    how = ["generate", str(folder), "--prompt", "one", "-n", "6"]
    expected = CliRunner().invoke(app, how).stdout
    log = emulated.EmulatedProvider.where.log
    log.clear()
    done = CliRunner().invoke(app, [*how, "--provider", "emulated:enable_cuda_graph=1"])
    assert (done.exit_code, done.stdout) == (0, expected), done.output
    assert log
    wrong = CliRunner().invoke(app, [*how, "--provider", "nobody"])
    assert wrong.exit_code == 2
    assert "nobody" in wrong.stderr
