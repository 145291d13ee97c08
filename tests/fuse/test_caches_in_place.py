"""Caches that stay in place, in graphs whose attention returns longer ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from encoders import HEAD, HEADS, LAYERS, PLACES, decoder, random_weights
from tenonnx_fuse.caches_in_place import CACHES_IN_PLACE_ENTRY

NDArray = np.ndarray[Any, np.dtype[Any]]

ROOM = 24
CROSS = {
    f"past_{kind}_cross_{i}": np.random.default_rng(i)
    .standard_normal((2, HEADS, PLACES, HEAD))
    .astype(np.float32)
    for i in range(LAYERS)
    for kind in ("key", "value")
}
SELF = [f"{kind}_self_{i}" for i in range(LAYERS) for kind in ("key", "value")]


@pytest.fixture
def proto() -> onnx.ModelProto:
    return decoder(random_weights(), text=False)


def session(given: onnx.ModelProto, asked: str = "1") -> tenonnx.InferenceSession:
    options = tenonnx.SessionOptions()
    options.add_session_config_entry(CACHES_IN_PLACE_ENTRY, asked)
    return tenonnx.InferenceSession(given.SerializeToString(), options)


def names(made: tenonnx.InferenceSession) -> list[str]:
    return [arg.name for arg in made.get_inputs()]


def test_steps_of_rows_with_lengths_of_their_own(proto: onnx.ModelProto) -> None:
    plain, made = session(proto, "0"), session(proto)
    assert names(made)[-2:] == ["attention_mask", "position_ids"]
    assert "MultiHeadAttention" in {step.op_type for step in proto.graph.node}
    tokens = np.random.default_rng(3).integers(0, 260, (2, 20))
    lengths = np.array([5, 3])
    caches = {f"past_{name}": np.zeros((2, HEADS, ROOM, HEAD), np.float32) for name in SELF}
    for row in range(2):  # prompts of different lengths
        step(made, caches, tokens[row : row + 1, : lengths[row]], [0], slice(row, row + 1))
    for _ in range(8):
        new = tokens[np.arange(2), lengths][:, None]
        logits = step(made, caches, new, lengths, slice(0, 2))
        lengths += 1
        for row in range(2):
            expected = whole(plain, tokens[row : row + 1, : lengths[row]], row)
            np.testing.assert_allclose(logits[row, -1], expected, atol=1e-4)


def step(
    made: tenonnx.InferenceSession,
    caches: dict[str, NDArray],
    tokens: NDArray,
    lengths: Any,
    rows: slice,
) -> NDArray:
    """Run new tokens of some rows; their caches stay where they are."""
    binding = made.io_binding()
    width = tokens.shape[1]
    total = max(lengths) + width
    mask = np.arange(total) < np.array(lengths)[:, None] + width
    places = np.array(lengths)[:, None] + np.arange(width)
    given = {"input_ids": tokens, "attention_mask": mask.astype(np.int64), "position_ids": places}
    for name, array in (given | {name: array[rows] for name, array in CROSS.items()}).items():
        binding.bind_cpu_input(name, array)
    for name in SELF:
        value = tenonnx.OrtValue(caches[f"past_{name}"][rows])
        binding.bind_ortvalue_input(f"past_{name}", value)
        binding.bind_ortvalue_output(f"present_{name}", value)
    binding.bind_output("logits")
    made.run_with_iobinding(binding)
    logits: NDArray = binding.get_outputs()[-1].numpy()
    return logits


def whole(plain: tenonnx.InferenceSession, tokens: NDArray, row: int) -> NDArray:
    """Return the logits of the last token, run without caches."""
    given = {"input_ids": tokens} | {name: each[row : row + 1] for name, each in CROSS.items()}
    given |= {f"past_{name}": np.zeros((1, HEADS, 0, HEAD), np.float32) for name in SELF}
    logits: NDArray = plain.run(["logits"], given)[0]
    return logits[0, -1]


def changed(proto: onnx.ModelProto, kind: str) -> onnx.ModelProto:
    """Return a decoder that is not as it has to be, but says the same."""
    graph = proto.graph
    first = next(each for each in graph.node if each.op_type == "MultiHeadAttention")
    if kind == "not causal":
        first.attribute.remove(next(a for a in first.attribute if a.name == "unidirectional"))
    elif kind == "a mask of that name":
        graph.input.append(onnx.helper.make_tensor_value_info("attention_mask", 7, ["b", "t"]))
    elif kind == "a length that is read":
        graph.output.append(onnx.helper.make_tensor_value_info("past", 7, []))
        cast = onnx.helper.make_node("Cast", ["past"], ["far"], to=1)
        graph.node.append(cast)
        graph.output.append(onnx.helper.make_tensor_value_info("far", 1, []))
    elif kind == "another length":
        gather = next(each for each in graph.node if list(each.output) == ["new"])
        gather.input[1] = "zero"
        gather.output[0] = "new_1d"
        graph.node.insert(
            list(graph.node).index(gather) + 1,
            onnx.helper.make_node("Squeeze", ["new_1d"], ["new"]),
        )
    elif kind == "a value of that name":
        graph.node.append(onnx.helper.make_node("Identity", ["logits"], ["position_ids"]))
        graph.output.append(onnx.helper.make_tensor_value_info("position_ids", 1, None))
    elif kind == "heads of another width":
        sizes = next(each for each in graph.input if each.name == "past_value_self_0")
        sizes.type.tensor_type.shape.dim[3].dim_value = 2 * HEAD
    elif kind == "a cache that is returned":
        graph.node.append(onnx.helper.make_node("Identity", ["past_key_self_0"], ["copy"]))
        graph.output.append(onnx.helper.make_tensor_value_info("copy", 1, None))
    return proto


@pytest.mark.parametrize("kind", [
    "not causal", "a mask of that name", "a length that is read", "another length",
    "a cache that is returned", "a value of that name", "heads of another width",
])  # fmt: skip
def test_others_stay_as_they_are(proto: onnx.ModelProto, kind: str) -> None:
    made = session(changed(proto, kind))
    assert "position_ids" not in names(made)
    assert not any(each.name == "caches-in-place" and each.modified for each in made.transforms)


def test_nobody_asks_for_it(proto: onnx.ModelProto) -> None:
    for asked in ("0", ""):
        assert "position_ids" not in names(session(proto, asked))
