"""Models with states of a fixed size beside caches, as ``lfm2`` has for its convolutions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from folders import write_hybrid, write_recurrent
from tenonnx import InferenceSession
from tenonnx_generate import Generator, GeneratorParams, Model
from tenonnx_generate.engine import Engine
from tenonnx_generate.errors import Unsupported

PROMPT = np.array([84, 104, 101, 32, 119, 105, 116, 104], np.int32)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(write_hybrid(tmp_path_factory.mktemp("hybrid") / "folder"))


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(write_recurrent(tmp_path_factory.mktemp("recurrent") / "folder"))


def whole(model: Model, tokens: Any) -> Any:
    """Return the logits after all tokens, which the graph is run on at once."""
    session = InferenceSession(model.description.path)
    feeds: dict[str, Any] = {}
    for arg in session.get_inputs():
        shape = [1, *(size if isinstance(size, int) else 0 for size in arg.shape[1:])]
        feeds[arg.name] = np.zeros(shape, np.float32)
    feeds["input_ids"] = np.array(tokens, np.int64)[None]
    feeds["attention_mask"] = np.ones_like(feeds["input_ids"])
    (logits,) = session.run(["logits"], feeds)
    return logits[:, -1]


def generator(model: Model, **options: Any) -> Generator:
    params = GeneratorParams(model)
    params.set_search_options(do_sample=False, **options)
    return Generator(model, params)


@pytest.mark.parametrize("kind", ["hybrid", "recurrent"])
@pytest.mark.parametrize("options", [{}, {"chunk_size": 3}, {"past_present_share_buffer": False}])
def test_a_state_goes_with_the_tokens(
    request: pytest.FixtureRequest, kind: str, options: dict[str, Any]
) -> None:
    model = request.getfixturevalue(kind)
    assert len(model.states) == {"hybrid": 1, "recurrent": 2}[kind]
    made = generator(model, max_length=30, **options)
    made.append_tokens(PROMPT)
    for _ in range(9):
        expected = whole(model, made.get_sequence(0))
        np.testing.assert_allclose(made.get_logits()[0], expected, atol=2e-5)
        made.generate_next_token()
    text = made.get_sequence(0)
    for length in (len(PROMPT) + 3, 0):
        made.rewind_to(length)
        if not length:
            made.append_tokens(PROMPT)
        while made.token_count() < len(text):
            made.generate_next_token()
        np.testing.assert_array_equal(made.get_sequence(0), text)


def test_rows_of_a_batch_have_states_of_their_own(hybrid: Model) -> None:
    made = generator(hybrid, max_length=24, batch_size=2)
    other = PROMPT[::-1].copy()
    made.append_tokens(np.concatenate([PROMPT, other]))
    while not made.is_done():
        made.generate_next_token()
    for row, prompt in enumerate((PROMPT, other)):
        alone = generator(hybrid, max_length=24)
        alone.append_tokens(prompt)
        while not alone.is_done():
            alone.generate_next_token()
        np.testing.assert_array_equal(made.get_sequence(row), alone.get_sequence(0))


def test_what_states_cannot_do_is_refused_by_name(hybrid: Model) -> None:
    with pytest.raises(Unsupported, match="neither beams nor drafts"):
        generator(hybrid, num_beams=2)
    params = GeneratorParams(hybrid)
    params.set_speculative_options(ngram_size=2)
    with pytest.raises(Unsupported, match="neither beams nor drafts"):
        Generator(hybrid, params)
    with pytest.raises(Unsupported, match="the states of lfm2 cannot"):
        Engine(hybrid)


def test_a_state_of_an_open_size_is_refused(tmp_path: Path) -> None:
    folder = write_hybrid(tmp_path / "folder")
    proto = onnx.load(folder / "model.onnx")
    proto.graph.input[-1].type.tensor_type.shape.dim[2].dim_param = "k"
    onnx.save(proto, folder / "model.onnx")
    with pytest.raises(Unsupported, match="whose size 'k' is open"):
        Model(folder)
