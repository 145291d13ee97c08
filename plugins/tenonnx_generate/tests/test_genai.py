"""onnxruntime-genai on the same folders: the same tokens, and logits within 1e-3."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoders import sweep, write_encoded, write_wave
from folders import (  # the graphs have nothing of the builder's but its operators
    write_folder,
    write_recurrent,
)

pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")

import tenonnx_generate

PROGRAM = """
import json, sys
import onnxruntime_genai as og
model = og.Model(sys.argv[1])
answers = []
for options, prompt in json.loads(sys.argv[2]):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=60, **options)
    generator = og.Generator(model, params)
    generator.append_tokens(prompt)
    logits = []
    while not generator.is_done():
        logits.append(generator.get_logits()[0, 0].tolist())
        generator.generate_next_token()
    texts = options.get("num_return_sequences", 1) * options.get("batch_size", 1)
    found = [generator.get_sequence(place).tolist() for place in range(texts)]
    answers.append([found, logits])
print(json.dumps(answers))
"""

CASES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [84, 104, 101]),
    ({"repetition_penalty": 1.3}, [84, 104, 101, 32, 119]),
    ({"min_length": 55}, [9, 8, 7]),
    ({"do_sample": True, "top_k": 1}, [200, 3, 50]),
    ({"past_present_share_buffer": False}, [1, 2, 3, 4]),
    *(
        ({"num_beams": beams, "num_return_sequences": 2, **options}, [84, 104, 101])
        for beams in (2, 5)
        for options in (
            {}, {"length_penalty": 0.0, "early_stopping": False}, {"length_penalty": 3.0},
            {"min_length": 40, "no_repeat_ngram_size": 2}, {"past_present_share_buffer": False},
        )
    ),
    ({"num_beams": 3, "num_return_sequences": 3, "batch_size": 2}, [84, 104, 101, 9, 8, 7]),
]  # fmt: skip
# A token that ends texts, as beams find it.
ENDS = 246


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(
        tmp_path_factory.mktemp("genai") / "folder", model={"eos_token_id": [257, ENDS]}
    )


@pytest.fixture(scope="module")
def theirs(folder: Path) -> list[Any]:
    command = [sys.executable, "-c", PROGRAM, str(folder), json.dumps(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("case", range(len(CASES)))
def test_tokens_and_logits_are_the_same(folder: Path, theirs: list[Any], case: int) -> None:
    options, prompt = CASES[case]
    sequences, logits = theirs[case]
    model = tenonnx_generate.Model(folder)
    params = tenonnx_generate.GeneratorParams(model)
    params.set_search_options(max_length=60, **options)
    made = tenonnx_generate.Generator(model, params)
    made.append_tokens(prompt)
    for expected in logits:
        np.testing.assert_allclose(made.get_logits()[0, 0], expected, atol=1e-3)
        made.generate_next_token()
    assert made.is_done()
    assert [made.get_sequence(place).tolist() for place in range(len(sequences))] == sequences


SPECULATIVE = """
import json, sys
import onnxruntime_genai as og
params = og.GeneratorParams(og.Model(sys.argv[1]))
params.set_search_options(max_length=60)
told = [params.get_speculative_options()]
params.set_speculative_options(ngram_size=3, max_draft_tokens=5)
generator = og.Generator(og.Model(sys.argv[1]), params)
generator.append_tokens([84, 104, 101])
while not generator.is_done():
    generator.generate_next_token()
print(json.dumps([*told, generator.get_sequence(0).tolist(), generator.get_speculative_stats()]))
"""


def test_what_is_drafted_has_the_same_names(folder: Path) -> None:
    command = [sys.executable, "-c", SPECULATIVE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    options, sequence, told = json.loads(done.stdout.splitlines()[-1])
    model = tenonnx_generate.Model(folder)
    params = tenonnx_generate.GeneratorParams(model)
    params.set_search_options(max_length=60)
    assert params.get_speculative_options() == options
    params.set_speculative_options(ngram_size=3, max_draft_tokens=5)
    made = tenonnx_generate.Generator(model, params)
    made.append_tokens([84, 104, 101])
    while not made.is_done():
        made.generate_next_token()
    assert made.get_sequence(0).tolist() == sequence
    assert made.get_speculative_stats().keys() <= told.keys()


LISTENER = """
import json, sys
import numpy as np
import onnxruntime_genai as og
folder, *paths = sys.argv[1:]
model = og.Model(folder)
processor = model.create_multimodal_processor()
inputs = processor(["<s>ab"] * len(paths), audios=og.Audios.open(*paths))
np.save(folder + "/features.npy", inputs["audio_features"].as_numpy())
params = og.GeneratorParams(model)
params.set_search_options(max_length=40, batch_size=len(paths))
generator = og.Generator(model, params)
generator.set_inputs(inputs)
logits = []
while not generator.is_done():
    logits.append(generator.get_logits()[:, 0].tolist())
    generator.generate_next_token()
sequences = [generator.get_sequence(row).tolist() for row in range(len(paths))]
print(json.dumps([inputs["input_ids"].as_numpy().tolist(), sequences, logits]))
"""


def test_transcripts_are_the_same(tmp_path: Path) -> None:
    folder = write_encoded(tmp_path / "folder", whole=True)
    lengths = (0.8, 1.7)
    paths = [write_wave(tmp_path / f"{i}.wav", sweep(length)) for i, length in enumerate(lengths)]
    command = [sys.executable, "-c", LISTENER, str(folder), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    ids, sequences, logits = json.loads(done.stdout.splitlines()[-1])
    model = tenonnx_generate.Model(folder)
    processor = model.create_multimodal_processor()
    inputs = processor("<s>ab", audios=tenonnx_generate.Audios.open(*paths))
    assert inputs["input_ids"].as_numpy().tolist() == ids
    theirs = np.load(folder / "features.npy")
    for row, length in enumerate(lengths):
        frames = round(length * 100)
        # Where a sound begins and ends, its neighborhood is another one there.
        same = [*range(2, frames - 2), *range(frames + 3, 3000)]
        mine = inputs["audio_features"].as_numpy()
        np.testing.assert_allclose(mine[row][:, same], theirs[row][:, same], atol=1e-4)
    params = tenonnx_generate.GeneratorParams(model)
    params.set_search_options(max_length=40, batch_size=len(paths))
    made = tenonnx_generate.Generator(model, params)
    made.set_model_input("audio_features", theirs)
    made.append_tokens(ids)
    for expected in logits:
        np.testing.assert_allclose(made.get_logits()[:, 0], expected, atol=1e-3)
        made.generate_next_token()
    assert made.is_done()
    assert [made.get_sequence(row).tolist() for row in range(len(paths))] == sequences


PICTURES = """
import json, sys
import numpy as np
import onnxruntime_genai as og
model = og.Model(sys.argv[1])
processor = model.create_multimodal_processor()
images = og.Images.open(*sys.argv[3:])
given = processor(sys.argv[2], images=images)
params = og.GeneratorParams(model)
params.set_search_options(do_sample=False)
generator = og.Generator(model, params)
generator.set_inputs(given)
logits = []
while not generator.is_done() and len(logits) < 20:
    logits.append(np.asarray(generator.get_logits())[0, 0].tolist())
    generator.generate_next_token()
print(json.dumps([
    np.asarray(given["pixel_values"].as_numpy()).tolist(),
    generator.get_sequence(0).tolist(),
    logits,
]))
"""


@pytest.mark.parametrize("kind", ["gemma3", "qwen2_5_vl", "qwen3_vl"])
def test_images(tmp_path: Path, kind: str) -> None:
    """The same pixels within a step of a byte, and from these the same tokens and logits."""
    from pictures import picture, write_pictured

    folder = write_pictured(tmp_path / kind, kind)
    files = []
    for number, sides in enumerate([(40, 20), (20, 40)][: 1 if kind == "gemma3" else 2]):
        files.append(tmp_path / f"{number}.png")
        files[-1].write_bytes(picture(*sides, number))
    place = (
        "<start_of_image>" if kind == "gemma3" else "<|vision_start|><|image_pad|><|vision_end|>"
    )
    prompt = "<s>What is this?" + place * len(files) + " Say it."
    command = [sys.executable, "-c", PICTURES, str(folder), prompt, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    pixels, sequence, logits = json.loads(done.stdout)

    model = tenonnx_generate.Model(folder)
    images = tenonnx_generate.Images.open(*files)
    given = model.create_multimodal_processor()(prompt, images=images)
    np.testing.assert_allclose(given["pixel_values"].as_numpy(), np.array(pixels), atol=1e-5)
    params = tenonnx_generate.GeneratorParams(model)
    params.set_search_options(do_sample=False)
    generator = tenonnx_generate.Generator(model, params)
    generator.set_inputs(given)
    assert len(logits) > 2
    for theirs in logits:
        np.testing.assert_allclose(generator.get_logits()[0, 0], theirs, atol=1e-3)
        generator.generate_next_token()
    length = generator.token_count()  # theirs has the token that ends a text
    assert generator.get_sequence(0).tolist() == sequence[:length]


@pytest.mark.parametrize("states", [False, True])
def test_hybrid_decoders(tmp_path: Path, states: bool) -> None:
    """The type has attention alone, as its builder writes it, or convolutions and recurrence."""
    folder = tmp_path / "folder"
    if states:
        write_recurrent(folder)
    else:
        write_folder(folder, model={"type": "granitemoehybrid"})
    prompt = [84, 104, 101, 32, 119]
    command = [sys.executable, "-c", PROGRAM, str(folder), json.dumps([[{}, prompt]])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    (((sequence,), logits),) = json.loads(done.stdout.splitlines()[-1])
    model = tenonnx_generate.Model(folder)
    params = tenonnx_generate.GeneratorParams(model)
    params.set_search_options(max_length=60)
    made = tenonnx_generate.Generator(model, params)
    made.append_tokens(prompt)
    for expected in logits:
        np.testing.assert_allclose(made.get_logits()[0, 0], expected, atol=1e-3)
        made.generate_next_token()
    assert made.get_sequence(0).tolist() == sequence
