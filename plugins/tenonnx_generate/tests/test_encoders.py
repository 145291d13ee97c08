"""Models with an encoder, against what their graphs compute, in numpy and without caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from encoders import (
    CONTEXT,
    START,
    VOCABULARY,
    encoded,
    followed,
    greedy,
    random_weights,
    sweep,
    write_encoded,
    write_wave,
)
from folders import EOS, PAD
from tenonnx_generate import (
    Audios,
    Config,
    Engine,
    Generator,
    GeneratorParams,
    Model,
    NamedTensors,
)
from tenonnx_generate.errors import Missing, Refused, Unsupported
from test_beams import found, reference
from test_generator import generator

pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")

PROMPT = "<s>ab"


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(write_encoded(tmp_path_factory.mktemp("speech") / "folder"))


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(write_encoded(tmp_path_factory.mktemp("text") / "folder", text=True))


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sounds")
    return [
        write_wave(folder / "up.wav", sweep(0.8)),
        write_wave(folder / "down.wav", sweep(1.0, low=3000, high=200)),
    ]


def inputs(model: Model, sounds: list[Path]) -> NamedTensors:
    made: NamedTensors = model.create_multimodal_processor()(PROMPT, audios=Audios.open(*sounds))
    return made


def test_greedy_tokens_are_those_of_whole_sequences(speech: Model, sounds: list[Path]) -> None:
    named = inputs(speech, sounds)
    assert sorted(named.keys()) == ["audio_features", "input_ids"]
    made = generator(speech, batch_size=2, max_length=40)
    made.set_inputs(named)
    states = [encoded(each) for each in named["audio_features"].as_numpy()]
    while not made.is_done():
        logits = made.get_logits()
        for row in range(2):
            expected = followed(states[row], made.get_sequence(row).tolist())[-1]
            np.testing.assert_allclose(logits[row, 0], expected, atol=1e-4)
        made.generate_next_token()
    assert made.get_sequence(0).tolist() == greedy(states[0], START, 40)
    assert made.get_sequence(1).tolist() == greedy(states[1], START, 40)
    assert made.get_sequence(0).tolist() != made.get_sequence(1).tolist()


def test_the_encoder_runs_once_and_nothing_of_it_is_copied(
    speech: Model, sounds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[dict[str, Any]] = []
    encoder = speech.encoder
    assert encoder is not None
    run = encoder.run

    def counted(given: Any) -> Any:
        runs.append(run(given))
        return runs[-1]

    monkeypatch.setattr(encoder, "run", counted)
    made = generator(speech, batch_size=3, max_length=20)
    made.set_inputs(NamedTensors())
    made.set_model_input("audio_features", inputs(speech, sounds[:1])["audio_features"])
    made.append_tokens(START * 3)
    while not made.is_done():
        made.generate_next_token()
    assert len(runs) == 1
    one = generator(speech, max_length=20)
    one.set_inputs(inputs(speech, sounds[:1]))
    while not one.is_done():
        one.generate_next_token()
    for row in range(3):
        assert made.get_sequence(row).tolist() == one.get_sequence(0).tolist()


def test_caches_that_grow_give_the_same(speech: Model, sounds: list[Path]) -> None:
    assert speech.in_place
    config = Config(speech.description.folder)
    entries = {"tenonnx.caches_in_place": "0"}
    told = {"model": {"decoder": {"session_options": {"config_entries": entries}}}}
    config.overlay(json.dumps(told))
    growing = Model(config)
    assert not growing.in_place
    answers = []
    for model in (speech, growing):
        made = generator(model, batch_size=4, max_length=30)
        made.set_inputs({**inputs(model, sounds), "input_ids": np.array([START] * 4)})
        while not made.is_done():
            made.generate_next_token()
        answers.append([made.get_sequence(row).tolist() for row in range(4)])
    assert answers[0] == answers[1]
    assert answers[0][0] == answers[0][1] != answers[0][2] == answers[0][3]


@pytest.mark.parametrize("in_place", ["1", "0"])
def test_beams_of_each_sound(speech: Model, sounds: list[Path], in_place: str) -> None:
    """Two sounds for four sequences: a row of the caches is of sequence row % 4."""
    config = Config(speech.description.folder)
    entries = {"tenonnx.caches_in_place": in_place}
    config.overlay(
        json.dumps({"model": {"decoder": {"session_options": {"config_entries": entries}}}})
    )
    model = Model(config)
    named = inputs(model, sounds)
    made = generator(model, batch_size=4, num_beams=3, num_return_sequences=3, max_length=14)
    made.set_inputs({**named, "input_ids": np.array([START] * 4)})
    answers = found(made, 12)
    for sequence in range(4):
        states = encoded(named["audio_features"].as_numpy()[sequence // 2])
        expected = reference(
            lambda tokens, states=states: followed(states, tokens)[-1],
            START, 14, EOS, 3, early=True, penalty=1.0,
        )  # fmt: skip
        assert answers[3 * sequence : 3 * sequence + 3] == expected


def test_tokens_that_are_suppressed(speech: Model, sounds: list[Path], tmp_path: Path) -> None:
    named = inputs(speech, sounds[:1])
    states = encoded(named["audio_features"].as_numpy()[0])
    free = greedy(states, START, 30)
    never, first = free[-1], free[len(START)]
    assert never != first
    folder = write_encoded(tmp_path / "folder")
    told = {"suppress_tokens": [never], "begin_suppress_tokens": [first], "max_length": 448}
    (folder / "generation_config.json").write_text(json.dumps(told))
    expected = list(START)
    while len(expected) < 30:
        logits = followed(states, expected)[-1]
        logits[[never, *([first] if len(expected) == len(START) else [])]] = -np.inf
        expected.append(int(logits.argmax()))
    assert EOS not in expected
    model = Model(folder)
    made = generator(model, max_length=30)
    made.set_inputs(inputs(model, sounds[:1]))
    for _ in range(2):
        while not made.is_done():
            made.generate_next_token()
        assert made.get_sequence(0).tolist() == expected
        made.rewind_to(len(START))
    made = generator(model, num_beams=2, max_length=30)
    made.set_inputs(inputs(model, sounds[:1]))
    for text in found(made, 1):
        assert never not in text[len(START) :]
        assert text[len(START)] != first


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([1], "is a JSON list"),
        ({"suppress_tokens": 7}, "expected a list of tokens"),
        ({"begin_suppress_tokens": [1, VOCABULARY]}, f"has {VOCABULARY}; expected numbers from"),
    ],
)
def test_suppression_that_cannot_be(tmp_path: Path, told: Any, said: str) -> None:
    folder = write_encoded(tmp_path / "folder")
    (folder / "generation_config.json").write_text(json.dumps(told))
    with pytest.raises(Refused, match=said):
        Model(folder)


def test_another_sound_after_going_back(speech: Model, sounds: list[Path]) -> None:
    made = generator(speech, max_length=30)
    answers = []
    for sound in (*sounds, sounds[0]):
        made.rewind_to(0)
        made.set_inputs(inputs(speech, [sound]))
        while not made.is_done():
            made.generate_next_token()
        answers.append(made.get_sequence(0).tolist())
    assert answers[0] == answers[2] != answers[1]
    made.rewind_to(10)
    made.generate_next_token()
    assert made.get_sequence(0).tolist() == answers[0][:11]


def test_texts_of_different_lengths(translator: Model) -> None:
    texts = [[84, 104, 101, 32, 119], [9, 8]]
    made = generator(translator, batch_size=2, max_length=20)
    made.append_tokens([texts[0], texts[1] + [PAD] * 3])
    while not made.is_done():
        made.generate_next_token()
    for row, text in enumerate(texts):
        states = random_weights()["table"][text]
        assert made.get_sequence(row).tolist() == greedy(states, [PAD], 20)
    with pytest.raises(Refused, match="has read its text already"):
        made.append_tokens([[1], [2]])
    with pytest.raises(Unsupported, match="'t5' takes no sounds"):
        translator.create_multimodal_processor()


def test_weights_of_two_graphs_are_there_once(tmp_path: Path) -> None:
    """The embedding lies in one file that both graphs name."""
    folder = write_encoded(tmp_path / "folder", text=True)
    for name in ("encoder.onnx", "decoder.onnx"):
        proto = onnx.load(folder / name)
        table = next(each for each in proto.graph.initializer if each.name == "table")
        (folder / "table.bin").write_bytes(table.raw_data)
        size = len(table.raw_data)
        table.ClearField("raw_data")
        table.data_location = onnx.TensorProto.EXTERNAL
        for key, said in (("location", "table.bin"), ("offset", "0"), ("length", str(size))):
            table.external_data.add(key=key, value=said)
        onnx.save(proto, folder / name)
    model = Model(folder)
    made = generator(model, max_length=8)
    made.append_tokens([84, 104])
    made.generate_next_token()
    files = [
        row
        for row in tenonnx.default_registry().report().storages
        if row.label == str(folder / "table.bin")
    ]
    assert [row.weights for row in files] == [1]


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"model.encoder": None}, Refused, "has no section 'encoder'"),
    ({"model.encoder.filename": "other.onnx"}, Missing, "other.onnx does not exist"),
    ({"model.encoder.filename": "../encoder.onnx"}, Refused, "no file inside"),
    ({"model.encoder.inputs.audio_features": "mel"}, Refused, "the encoder has no input 'mel'"),
    ({"model.encoder.outputs.cross_present_key_names": "key_%d"}, Refused, "no output 'key_0'"),
    ({"model.encoder.outputs.cross_present_key_names": "key"}, Refused, "expected one %d"),
    ({"model.decoder.inputs.cross_past_key_names": "k_%d"}, Unsupported, "'past_key_cross_0'"),
    ({"model.type": "llama"}, Unsupported, "has a section 'encoder'"),
    ({"model.type": "marian-ssru"}, Unsupported, "which has a recurrent decoder"),
    ({"model.encoder_decoder_init": {}}, Unsupported, "section 'encoder_decoder_init'"),
    ({"model.speech": {"config_filename": "../x"}}, Missing, "has no ../x"),
]


@pytest.mark.parametrize(("changes", "kind", "said"), WRONG)
def test_configurations_that_cannot_be(
    tmp_path: Path, changes: dict[str, Any], kind: type[Exception], said: str
) -> None:
    folder = write_encoded(tmp_path / "folder", **changes)
    with pytest.raises(kind, match=said):
        Model(folder).create_multimodal_processor()


def resized(folder: Path, file: str, name: str, axis: int, size: int) -> None:
    proto = onnx.load(folder / file)
    for each in (*proto.graph.input, *proto.graph.output):
        if each.name == name:
            each.type.tensor_type.shape.dim[axis].dim_value = size
    onnx.save(proto, folder / file)


def test_graphs_that_do_not_fit_each_other(tmp_path: Path) -> None:
    folder = write_encoded(tmp_path / "folder")
    for name in ("past_key_cross_1", "past_value_cross_1"):
        resized(folder, "decoder.onnx", name, 2, 49)
    with pytest.raises(Refused, match=r"'past_key_cross_1' is .*49.*'present_key_cross_1' of"):
        Model(folder)
    folder = write_encoded(tmp_path / "bands")
    proto = onnx.load(folder / "encoder.onnx")
    proto.graph.input.append(proto.graph.input[0])
    proto.graph.input[1].name = "lengths"
    onnx.save(proto, folder / "encoder.onnx")
    with pytest.raises(Unsupported, match="asks for the input 'lengths'"):
        Model(folder)
    (folder / "encoder.onnx").unlink()
    with pytest.raises(Missing, match=r"encoder\.onnx does not exist"):
        Model(folder)


def test_requests_that_cannot_be(speech: Model, model: Model, sounds: list[Path]) -> None:
    named = inputs(speech, sounds)
    made = generator(speech, max_length=20)
    with pytest.raises(Refused, match="given no sound"):
        made.append_tokens(START)
    with pytest.raises(Refused, match="of 2 sounds; expected one for all"):
        made.set_inputs(named)
    with pytest.raises(Refused, match="takes no 'pixel_values'"):
        made.set_model_input("pixel_values", np.zeros(3, np.float32))
    for shape in ((1, 7, 100), (1, 20), (1, 20, 101)):
        with pytest.raises(Refused, match=r"audio_features is float32.*the encoder takes"):
            made.set_model_input("audio_features", np.zeros(shape, np.float32))
    with pytest.raises(Refused, match="takes no 'audio_features'"):
        generator(model, max_length=20).set_inputs(named)
    with pytest.raises(Unsupported, match="takes no sounds"):
        model.create_multimodal_processor()
    with pytest.raises(Unsupported, match="no model with an encoder"):
        Engine(speech)
    params = GeneratorParams(speech)
    params.set_speculative_options(ngram_size=3)
    with pytest.raises(Unsupported, match="has an encoder, and tokens are drafted"):
        Generator(speech, params)
    assert made.token_count() == 0
    assert speech.description.context == CONTEXT


def test_decoders_take_tokens_by_set_inputs(model: Model) -> None:
    made = generator(model, max_length=20)
    named = NamedTensors()
    named["input_ids"] = np.array([[84, 104]], np.int32)
    made.set_inputs(named)
    assert made.token_count() == 2


def test_an_encoder_that_makes_other_rows(tmp_path: Path, sounds: list[Path]) -> None:
    folder = write_encoded(tmp_path / "folder")
    proto = onnx.load(folder / "encoder.onnx")
    for each in proto.graph.node:
        if list(each.output) == ["present_key_cross_0"]:
            each.output[0] = "half"
    proto.graph.node.append(onnx.helper.make_node("Concat", ["half"] * 2, [
        "present_key_cross_0"
    ], axis=0))  # fmt: skip
    onnx.save(proto, folder / "encoder.onnx")
    model = Model(folder)
    with pytest.raises(Refused, match=r"'present_key_cross_0' of shape \[2, .*; expected 1 rows"):
        generator(model, max_length=20).set_inputs(inputs(model, sounds[:1]))


def test_both_graphs_are_opened_with_what_a_caller_says(tmp_path: Path) -> None:
    config = Config(write_encoded(tmp_path / "folder"))
    config.overlay('{"model": {"decoder": {"session_options": {"intra_op_num_threads": 1}}}}')
    config.append_provider("cpu")
    encoder = Model(config).encoder
    assert encoder is not None
    assert encoder.about.session["intra_op_num_threads"] == 1
    assert encoder.about.providers == [("CPUExecutionProvider", {})]
