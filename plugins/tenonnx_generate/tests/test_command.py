"""``tenonnx generate``, on the trained example model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from encoders import (
    BANDS,
    CONTEXT,
    FIRST,
    SPEECH,
    START,
    encoded,
    followed,
    greedy,
    random_weights,
    sweep,
    write_encoded,
    write_wave,
)
from folders import PAD, write_adapter, write_folder
from sources import ROOT

pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
pytest.importorskip("jinja2", reason="tenonnx-generate is not installed")
pytest.importorskip("llguidance", reason="tenonnx-generate is not installed")

from tenonnx.cli.app import app
from tenonnx_generate import Audios, Generator, GeneratorParams, Model, Tokenizer
from tenonnx_generate.mel import SAMPLE_RATE, Mel, features

EXAMPLE = ROOT / "examples" / "generate"
SAID = ' is executed in the "else" clause, and the exception is'

pytestmark = pytest.mark.skipif(
    not any(command.name == "generate" for command in app.registered_commands)
    and "generate" not in CliRunner().invoke(app, ["--help"]).output,
    reason="this installation is older than the subcommand: repeat pip install -e",
)


def run(*arguments: object, given: str = "") -> Any:
    return CliRunner().invoke(app, ["generate", *map(str, arguments)], input=given)


@pytest.mark.parametrize("how", [["--prompt", "The with statement"], ["--no-stream"]])
def test_a_text_goes_on(how: list[str]) -> None:
    done = run(EXAMPLE / "model", *how, "-n", 18, given="The with statement")
    assert done.exit_code == 0, done.output
    assert done.stdout == SAID + "\n"
    assert "3 tokens read in" in done.stderr
    assert "18 generated" in done.stderr
    assert "of private memory" in done.stderr


def test_it_is_the_text_of_the_loop_by_hand() -> None:
    options = ["The with statement", "--tokens", "18", "--temperature", "0"]
    script = [sys.executable, EXAMPLE / "generate.py", *options]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert done.stdout == f"The with statement{SAID}\n"


def test_json_and_seeds() -> None:
    how = ["--prompt", "The", "-n", 5, "--temperature", 1.0, "--json", "--seed"]
    first, again, other = (
        json.loads(run(EXAMPLE / "model", *how, seed).stdout) for seed in (3, 3, 4)
    )
    assert first["text"] == again["text"] != other["text"]
    assert (first["prompt_tokens"], first["tokens"]) == (1, 5)
    assert first["tokens_per_second"] > 0


def test_texts_end_before_others_and_keep_to_schemas(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"enum": ["a", "with"]}')
    how = [EXAMPLE / "model", "--prompt", "The with statement"]
    assert run(*how, "--stop", "zzz", "--stop", "clause").stdout == ' is executed in the "else" \n'
    for schema in (tmp_path / "schema.json", '{"enum": ["a", "with"]}'):
        done = run(*how, "--json-schema", schema)
        assert json.loads(done.stdout) in ("a", "with"), done.output
        assert "not complete" not in done.stderr
    assert "complete after 1 tokens" in run(*how, "--json-schema", schema, "-n", 1).stderr


def test_a_chat_reads_only_what_is_new(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    done = run(folder, "--chat", "--system", "s", "-n", 3, given="one\ntwo\n")
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) >= 2
    assert "more were there" in done.stderr


def test_adapters_change_what_is_said(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", lora="empty")
    file = write_adapter(tmp_path / "mine.onnx_adapter", 1)
    how = [folder, "--prompt", "one", "-n", 8, "--json"]
    texts = [
        json.loads(run(*how, *more).stdout)["text"]
        for more in ([], ["--adapter", file], ["--adapter", f"mine={file}"])
    ]
    assert texts[0] != texts[1] == texts[2]


def test_beams_print_the_likeliest_text() -> None:
    how = [EXAMPLE / "model", "--prompt", "A list is", "--beams", 4, "-n", 7]
    done = run(*how)
    assert done.exit_code == 0, done.output
    model = Model(EXAMPLE / "model")
    tokens = Tokenizer(model).encode("A list is")
    params = GeneratorParams(model)
    params.set_search_options(num_beams=4, max_length=len(tokens) + 7)
    made = Generator(model, params)
    made.append_tokens(tokens)
    while not made.is_done():
        made.generate_next_token()
    expected = Tokenizer(model).decode(made.get_sequence(0)[len(tokens) :])
    assert done.stdout == expected + "\n"
    assert run(*how[:-4]).stdout != done.stdout


def test_beams_chat(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    done = run(folder, "--chat", "--beams", 2, "-n", 3, given="one\ntwo\n")
    assert done.exit_code == 0, done.output
    assert "more were there" in done.stderr


def test_drafts_leave_the_text_as_it_is() -> None:
    how = [EXAMPLE / "model", "--prompt", "The with statement", "-n", 18]
    done = run(*how, "--draft", EXAMPLE / "model", "--draft-tokens", 3)
    assert done.exit_code == 0, done.output
    assert done.stdout == SAID + "\n"
    assert "100 % of drafted tokens accepted" in done.stderr
    told = json.loads(run(*how, "--draft", EXAMPLE / "model", "--json").stdout)
    assert told["draft_acceptance"] == 1
    assert json.loads(run(*how, "--json").stdout)["draft_acceptance"] is None


@pytest.mark.parametrize(("arguments", "code", "said"), [
    ([EXAMPLE / "model", "--beams", 2, "--stop", "a"], 2, "beams end at a token"),
    ([EXAMPLE / "model", "--beams", 2, "--temperature", 1], 2, "do_sample draws them"),
    ([EXAMPLE / "model", "--beams", 2, "--draft", EXAMPLE / "model"], 2, "num_beams is 2"),
    ([EXAMPLE / "model", "--draft", "nowhere"], 3, "is no folder"),
    ([EXAMPLE / "model", "--draft-tokens", 3], 2, "no model drafts tokens"),
    (["nowhere"], 3, "is no folder"),
    (["--chat", "--prompt", "x", EXAMPLE / "model"], 2, "takes neither"),
    ([EXAMPLE / "model", "--prompt", "a" * 2000], 2, "more than max_length"),
    ([EXAMPLE / "model", "--top-p", 2], 2, "top_p is 2"),
    ([EXAMPLE / "model", "--json-schema", "{"], 2, "json_schema is wrong"),
    ([EXAMPLE / "model", "--json-schema", "nowhere.json"], 3, "does not exist"),
    ([EXAMPLE / "model", "--adapter", "x=nowhere"], 3, "nowhere does not exist"),
    ([EXAMPLE / "model", "--chat"], 2, "has no chat template"),
])  # fmt: skip
def test_mistakes_are_sentences(arguments: list[Any], code: int, said: str) -> None:
    done = run(*arguments, given="x\n")
    assert done.exit_code == code
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoded(tmp_path_factory.mktemp("speech") / "folder")


def transcribed(folder: Path, sound: Path, tokens: list[int], most: int) -> str:
    """Return the text of each second of a sound, by the graph's formulas."""
    (clip,) = Audios.open(sound)
    tokenizer = Tokenizer(Model(folder))
    text = ""
    for second in range(-(-clip.frames // SAMPLE_RATE)):
        states = encoded(
            features(
                clip.samples(SAMPLE_RATE, second * SAMPLE_RATE, SAMPLE_RATE), Mel(BANDS, seconds=1)
            )
        )
        made = greedy(states, tokens, min(len(tokens) + most, CONTEXT))
        text += tokenizer.decode(made[len(tokens) :])
    return text


def test_a_sound_is_transcribed_piece_by_piece(speech: Path, tmp_path: Path) -> None:
    sound = write_wave(tmp_path / "long.wav", sweep(2.5), channels=2)
    start, english, french, _, transcribe, plain, _ = range(FIRST, FIRST + len(SPEECH))
    done = run(speech, "--audio", sound, "--language", "fr", "-n", 9)
    assert done.exit_code == 0, done.output
    tokens = [start, french, transcribe, plain]
    assert done.stdout == transcribed(speech, sound, tokens, 9) + "\n"
    assert "12 tokens read in" in done.stderr
    (clip,) = Audios.open(sound)
    states = encoded(features(clip.samples(SAMPLE_RATE, 0, SAMPLE_RATE), Mel(BANDS, seconds=1)))
    tokens[1] = max((english, french), key=lambda token: followed(states, [start])[-1][token])
    done = run(speech, "--audio", sound, "-n", 9, "--json")
    assert json.loads(done.stdout)["text"] == transcribed(speech, sound, tokens, 9)
    done = run(speech, "--audio", sound, "--prompt", "<s>ab", "-n", 4)
    assert done.stdout == transcribed(speech, sound, START, 4) + "\n"


def test_a_text_that_an_encoder_reads(tmp_path: Path) -> None:
    folder = write_encoded(tmp_path / "folder", text=True)
    done = run(folder, "--prompt", "The", "-n", 8)
    assert done.exit_code == 0, done.output
    made = greedy(random_weights()["table"][list(b"The")], [PAD], 9)
    assert done.stdout == Tokenizer(Model(folder)).decode(made[1:]) + "\n"


def test_mistakes_with_sounds(speech: Path, tmp_path: Path) -> None:
    sound = write_wave(tmp_path / "a.wav", sweep(0.5))
    cut = tmp_path / "cut.wav"
    cut.write_bytes(sound.read_bytes()[:1000])
    for arguments, code, said in [
        ([speech, "--prompt", "x"], 2, "'whisper' transcribes sounds hint: --audio FILE names one"),
        ([EXAMPLE / "model", "--audio", sound], 4, "takes no sounds"),
        ([speech, "--language", "en"], 2, "--language is that of a sound"),
        ([speech, "--audio", sound, "--chat"], 2, "--audio takes no --chat"),
        ([speech, "--audio", sound, "--language", "xx"], 2, "no token <|xx|>"),
        ([speech, "--audio", sound, "--language", "transcribe"], 2, "no language of the model's"),
        ([speech, "--audio", tmp_path / "no.wav"], 3, "does not exist"),
        ([speech, "--audio", cut], 2, "is cut off"),
    ]:
        done = run(*arguments, given="x")
        assert said in " ".join(done.stderr.split()), done.stderr
        assert done.exit_code == code
        assert "Traceback" not in done.stderr


def test_a_question_about_images(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed")
    from pictures import picture, write_pictured
    from tenonnx_generate import Images

    folder, file = write_pictured(tmp_path / "gemma", "gemma3"), tmp_path / "a.png"
    file.write_bytes(picture(40, 20))
    said = run(folder, "--prompt", "What?", "--image", file, "--json", "-n", 5)
    assert said.exit_code == 0, said.output
    model = Model(folder)
    processor = model.create_multimodal_processor()
    given = processor("<s><|user|><start_of_image>What?<|assistant|>", images=Images.open(file))
    generator = Generator(model, GeneratorParams(model))
    generator.set_inputs(given)
    begun = generator.token_count()
    for _ in range(5):
        generator.generate_next_token()
    told = json.loads(said.stdout)
    assert told["text"] == processor.decode(generator.get_sequence(0)[begun:])
    assert told["prompt_tokens"] == begun
    refused = run(folder, "--chat", "--image", file)
    assert refused.exit_code
    missing = run(folder, "--prompt", "What?", "--image", tmp_path / "b.png")
    assert "does not exist" in missing.output + str(missing.exception)
