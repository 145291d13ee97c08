"""Outputs of a decoder's graph besides logits and caches."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from folders import LAYERS, WIDTH, write_folder
from models import FLOAT, value
from tenonnx_generate import Model
from tenonnx_generate.errors import Refused
from test_generator import PROMPT, generator


@pytest.fixture(scope="module")
def showing(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model that returns what its head is given, as ``hidden_states``."""
    folder = write_folder(tmp_path_factory.mktemp("outputs") / "folder")
    proto = onnx.load(folder / "model.onnx")
    for node in proto.graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = "hidden_states" if name == f"x{LAYERS}" else name
    proto.graph.output.append(value("hidden_states", FLOAT, ["b", "n", WIDTH]))
    onnx.save(proto, folder / "model.onnx")
    return Model(folder)


@pytest.mark.parametrize("in_place", [True, False])
def test_hidden_states_are_those_of_every_new_token(showing: Model, in_place: bool) -> None:
    made = generator(showing, max_length=24, past_present_share_buffer=in_place)
    made.append_tokens(PROMPT)
    states = made.get_output("hidden_states")
    held = states.copy()
    assert states.shape == (1, len(PROMPT), WIDTH)
    graph = onnx.load(showing.description.path).graph
    stored = next(each for each in graph.initializer if each.name == "head")
    head = onnx.numpy_helper.to_array(stored)
    np.testing.assert_allclose(states[0, -1] @ head, made.get_logits()[0, 0], atol=1e-4)
    made.generate_next_token()
    made.get_logits()
    assert made.get_output("hidden_states").shape == (1, 1, WIDTH)
    np.testing.assert_array_equal(states, held)
    whole = generator(showing, max_length=24)
    whole.append_tokens(made.get_sequence(0))
    states = whole.get_output("hidden_states")[:, -1:]
    np.testing.assert_allclose(made.get_output("hidden_states"), states, atol=1e-4)


def test_outputs_that_there_are_not(showing: Model) -> None:
    made = generator(showing, max_length=24)
    for name in ("hidden_states", "states"):
        with pytest.raises(Refused, match=f"no output '{name}' yet"):
            made.get_output(name)
    made.append_tokens(PROMPT)
    with pytest.raises(Refused, match="no output 'states'"):
        made.get_output("states")
