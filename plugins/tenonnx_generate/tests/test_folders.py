"""Folders that are wrong, and options that cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import tenonnx
from encoders import write_encoded
from folders import configuration, decoder, write_folder
from tenonnx_generate import Config, GeneratorParams, Model
from tenonnx_generate.errors import Missing, Refused, Unsupported
from tenonnx_generate.files import CONFIG_LIMIT


def opened(folder: Path, **changes: Any) -> Model:
    """Open a folder whose configuration is changed at paths such as ``model.type``."""
    config = configuration()
    for path, new in changes.items():
        *sections, key = path.split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = new
    (folder / "genai_config.json").write_text(json.dumps(config))
    return Model(folder)


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "folder")


WRONG = [
    ("model.type", "lama", Unsupported, "'lama', which nobody knows"),
    ("model.type", "marian-ssru", Unsupported, "which has a recurrent decoder"),
    ("model.type", "whisper", Refused, "has no section .encoder"),
    ("model.type", 3, Refused, "type in genai_config.json is 3; expected a text"),
    ("model.encoder", {}, Unsupported, "has a section 'encoder'"),
    ("model.decoder.pipeline", [{}], Unsupported, "has a pipeline"),
    ("model.decoder.sliding_window", {"slide_key_value_cache": True}, Unsupported, "that slide"),
    ("model.vocab_size", 0, Refused, "vocab_size in genai_config.json is 0"),
    ("model.vocab_size", 10**12, Refused, "vocab_size"),
    ("model.context_length", True, Refused, "context_length"),
    ("model.context_length", None, Refused, "context_length"),
    ("model.eos_token_id", [1, 999], Refused, "eos_token_id in genai_config.json is 999"),
    ("model.bos_token_id", -1, Refused, "bos_token_id"),
    ("model.decoder", [], Refused, "decoder in genai_config.json is"),
    ("model.decoder.filename", "../model.onnx", Refused, "no file inside"),
    ("model.decoder.filename", "/etc/passwd", Refused, "no file inside"),
    ("model.decoder.filename", "other.onnx", Missing, "does not exist"),
    ("model.decoder.num_hidden_layers", 10**9, Refused, "num_hidden_layers"),
    ("model.decoder.num_hidden_layers", 1, Unsupported, "asks for the input 'past_key_values.1"),
    ("model.decoder.num_key_value_heads", 3, Refused, "num_key_value_heads is 3, but"),
    ("model.decoder.head_size", 8, Refused, "head_size is 8, but"),
    ("model.decoder.inputs", {"input_ids": "tokens"}, Refused, "no input 'tokens'"),
    ("model.decoder.inputs", {"past_key_names": "past"}, Refused, "expected one %d"),
    ("model.decoder.inputs", {"past_key_names": "%d%s"}, Refused, "expected one %d"),
    ("model.decoder.outputs", {"logits": "scores"}, Refused, "no output 'scores'"),
    ("model.decoder.outputs", {"present_key_names": "now.%d"}, Refused, "no output 'now.0'"),
    ("model.decoder.session_options", {"provider_options": 3}, Refused, "provider_options"),
    ("model.decoder.session_options", {"provider_options": [3]}, Refused, "provider_options"),
    ("model.decoder.session_options", {"provider_options": [{"cpu": 3}]}, Refused, "options of"),
    ("model.decoder.session_options", {"intra_op_num_threads": "x"}, TypeError, "intra_op"),
]


@pytest.mark.parametrize(("path", "new", "kind", "said"), WRONG)
def test_configurations_that_cannot_be(
    fresh: Path, path: str, new: Any, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        opened(fresh, **{path: new})


@pytest.mark.parametrize("kind", ["hunyuandensev1", "qwen3_5_text", "gemma4_text"])
def test_text_decoders_of_other_names_run(fresh: Path, kind: str) -> None:
    assert opened(fresh, **{"model.type": kind}).type == kind


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("gemma4", "images"),
        ("moonshine", "sound"),
        ("nemotron_h", "recurrent or convolution caches"),
    ],
)
def test_what_is_more_than_a_decoder_is_refused_by_name(fresh: Path, kind: str, said: str) -> None:
    with pytest.raises(Unsupported, match=f"'{kind}', which has {said}"):
        opened(fresh, **{"model.type": kind})


def test_files_that_are_missing_or_no_json(fresh: Path) -> None:
    config = fresh / "genai_config.json"
    for content, said in [
        (b"{", "is no JSON"),
        (b"[]", "is a JSON list; expected an object"),
        (b"[" * 100_000, "is no JSON"),
        (b"\xff{}", "is not UTF-8"),
        (b" " * (CONFIG_LIMIT + 1), "has more than 4 MiB"),
    ]:
        config.write_bytes(content)
        with pytest.raises(Refused, match=said):
            Model(fresh)
    config.unlink()
    with pytest.raises(Missing, match=r"has no genai_config\.json"):
        Model(fresh)
    with pytest.raises(FileNotFoundError, match="is no folder"):
        Model(fresh / "nowhere")


def test_graphs_that_do_not_fit(fresh: Path) -> None:
    proto = decoder()
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(proto, fresh / "model.onnx")
    with pytest.raises((Unsupported, tenonnx.InvalidGraph)):
        Model(fresh)
    (fresh / "model.onnx").write_bytes(b"no model")
    with pytest.raises(tenonnx.TenonnxError):
        Model(fresh)


def test_a_configuration_is_changed_before_it_is_used(fresh: Path) -> None:
    config = Config(fresh)
    config.overlay('{"model": {"type": "qwen2"}, "search": {"top_k": 3}}')
    config.append_provider("cuda")
    config.set_provider_option("cpu", "x", "1")
    with pytest.raises(Refused, match="'gpu' is no provider"):
        config.append_provider("gpu")
    with pytest.raises(Refused, match="the overlay is no JSON"):
        config.overlay("nothing")
    config.clear_providers()
    model = Model(config)
    assert model.type == "qwen2"
    assert model.device_type == "cpu"
    assert GeneratorParams(model).get_search_options()["top_k"] == 3


@pytest.mark.parametrize(("options", "kind", "said"), [
    ({"topk": 3}, Refused, "no search option 'topk'; did you mean 'top_k'"),
    ({"top_k": -1}, Refused, "top_k is -1"),
    ({"top_k": 2.5}, Refused, "whole number"),
    ({"top_p": 1.5}, Refused, "top_p is 1.5"),
    ({"temperature": float("nan")}, Refused, "expected a number"),
    ({"temperature": "hot"}, Refused, "expected a number"),
    ({"do_sample": 1}, Refused, "expected True or False"),
    ({"batch_size": 0}, Refused, "batch_size is 0"),
    ({"max_length": 129}, Refused, "the model's context has 128 tokens"),
    ({"num_beams": 0}, Refused, "num_beams is 0"),
    ({"top_k": 7, "repetition_penalty": 0}, Refused, "repetition_penalty"),
])  # fmt: skip
def test_options_that_cannot_be_change_nothing(
    model: Model, options: dict[str, Any], kind: type[Exception], said: str
) -> None:
    params = GeneratorParams(model)
    before = params.get_search_options()
    with pytest.raises(kind, match=said):
        params.set_search_options(**options)
    assert params.get_search_options() == before


def test_options_of_the_folder_count(tmp_path: Path) -> None:
    made = Model(write_folder(tmp_path / "a", search={"top_p": 0.5, "random_seed": 7}))
    assert GeneratorParams(made).get_search_options()["top_p"] == 0.5
    wrong = Model(write_folder(tmp_path / "b", search={"tempreature": 1}))
    with pytest.raises(Refused, match="did you mean 'temperature'"):
        GeneratorParams(wrong)


@pytest.mark.usefixtures("keeps_plans")
@pytest.mark.parametrize("write", [write_folder, write_encoded])
def test_a_kept_plan_is_opened_without_the_model(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    folder = write(tmp_path / "folder")
    first, second = Model(folder), Model(folder)
    assert list(second.session.load_times) == ["open"]
    assert not second.session._model.is_open
    assert second.in_place == first.in_place == (write is write_encoded)
