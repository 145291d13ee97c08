"""Models for the search operators: no attention, but logits that depend on all that is fed.

Every layer adds up what it has in its cache, where the mask lets it, and adds that to the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

VOCABULARY, HEADS, SIZE, LAYERS, FEATURES = 24, 2, 3, 2, 5
WIDTH = HEADS * SIZE
FLOAT, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32


class Toy:
    """A graph that is being written; the same weight has the same values in every graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray[Any, Any]] = {
            "heads": np.array([0, 0, HEADS, SIZE]),
            "flat": np.array([0, 1, WIDTH]),
            "one_three": np.array([1, 3]),
            "zero_three": np.array([0, 3]),
            "zero": np.array([0]),
            "two": np.array([2]),
        }

    def __call__(self, op: str, inputs: str, output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs.split(), [output], **attributes))
        return output

    def weight(self, name: str, *shape: int) -> str:
        random = np.random.default_rng(list(name.encode()))
        self.weights[name] = (random.normal(size=shape) * 0.8).astype(np.float32)
        return name

    def split(self, state: str, weight: str, output: str) -> str:
        """``[rows, new, width]`` times a matrix, as ``[rows, heads, new, size]``."""
        product = self("MatMul", f"{state} {self.weight(weight, WIDTH, WIDTH)}", f"{output}_m")
        shaped = self("Reshape", f"{product} heads", f"{output}_r")
        return self("Transpose", shaped, output, perm=[0, 2, 1, 3])

    def embed(self, ids: str, table: str, count: int = VOCABULARY) -> str:
        return self("Gather", f"{self.weight(table, count, WIDTH)} {ids}", f"{ids}_{table}")

    def see(self, mask: str) -> str:
        """A mask ``[rows, length]`` as ``[rows, 1, length, 1]``."""
        return self("Unsqueeze", f"{self('Cast', mask, 'floats', to=FLOAT)} one_three", "seen")

    def graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.GraphProto:
        weights = [numpy_helper.from_array(array, key) for key, array in self.weights.items()]
        return helper.make_graph(self.nodes, name, inputs, outputs, weights)


def value(name: str, kind: int, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def gpt() -> onnx.GraphProto:
    toy = Toy()
    state = toy("Add", f"{toy.embed('input_ids', 'emb')} {toy.embed('position_ids', 'pos')}", "s")
    seen = toy.see("attention_mask")
    for i in range(LAYERS):
        parts = [
            toy(
                "Unsqueeze", f"{toy.split(state, f'{part}{i}', f'{part}_{i}')} zero", f"u_{part}{i}"
            )
            for part in "kv"
        ]
        new = toy("Concat", " ".join(parts), f"new_{i}", axis=0)
        cache = toy("Concat", f"past_{i} {new}", f"present_{i}", axis=3)
        total = toy("ReduceSum", f"{toy('Mul', f'{cache} {seen}', f'm{i}')} zero_three", f"t{i}",
                    keepdims=0)  # fmt: skip
        mixed = toy("Tanh", toy("Reshape", f"{total} flat", f"f{i}"), f"a{i}")
        state = toy("Add", f"{state} {mixed}", f"s{i}")
    toy("MatMul", f"{state} {toy.weight('head', WIDTH, VOCABULARY)}", "logits")
    cache_shape = (HEADS, "length", SIZE)
    ids = [value(n, INT32, "rows", "new") for n in ("input_ids", "position_ids")]
    pasts = [value(f"past_{i}", FLOAT, 2, "rows", *cache_shape) for i in range(LAYERS)]
    presents = [value(f"present_{i}", FLOAT, 2, "rows", HEADS, "all", SIZE) for i in range(LAYERS)]
    logits = value("logits", FLOAT, "rows", "new", VOCABULARY)
    return toy.graph(
        "decoder",
        [*ids, value("attention_mask", INT32, "rows", "all"), *pasts],
        [logits, *presents],
    )


def decode(toy: Toy, ids: str, seen: str, cross: str, past: bool) -> None:
    """Write a decoder that reads the cross attention's cache, and its own if there is one."""
    state = toy.embed(ids, "words")
    for i in range(LAYERS):
        for part in ("key", "value"):
            present = f"present_{part}_self_{i}"
            new = toy.split(state, f"self_{part}_{i}", f"new_{part}_{i}" if past else present)
            if past:
                toy("Concat", f"past_{part}_self_{i} {new}", present, axis=2)
        own = toy("Add", f"present_key_self_{i} present_value_self_{i}", f"own{i}")
        far = toy("Add", f"{cross}_key_cross_{i} {cross}_value_cross_{i}", f"far{i}")
        parts = [
            toy("ReduceSum", f"{array} two", f"sum_{array}", keepdims=0)
            for array in (own, toy("Mul", f"{far} {seen}", f"seen_far{i}"))
        ]
        total = toy("Reshape", f"{toy('Add', ' '.join(parts), f'both{i}')} flat", f"flat{i}")
        state = toy("Add", f"{state} {toy('Tanh', total, f'mixed{i}')}", f"state{i}")
    toy("MatMul", f"{state} {toy.weight('head', WIDTH, VOCABULARY)}", "logits")


def caches(when: str, what: str, length: str) -> list[Any]:
    return [
        value(f"{when}_{part}_{what}_{i}", FLOAT, "rows", HEADS, length, SIZE)
        for i in range(LAYERS)
        for part in ("key", "value")
    ]


def encoder(*, audio: bool, starts: bool) -> onnx.GraphProto:
    """``starts``: it makes the first logits and the self attention's cache as well."""
    toy = Toy()
    if audio:
        frames = toy("Transpose", "encoder_input_ids", "frames", perm=[0, 2, 1])
        state = toy("MatMul", f"{frames} {toy.weight('listen', FEATURES, WIDTH)}", "state")
        toy.weights["seen"] = np.ones((1, 1, 1, 1), np.float32)
        inputs = [value("encoder_input_ids", FLOAT, "rows", FEATURES, "length")]
    else:
        state = toy.embed("encoder_input_ids", "read")
        toy.see("encoder_attention_mask")
        names = ("encoder_input_ids", "encoder_attention_mask")
        inputs = [value(name, INT32, "rows", "length") for name in names]
    for i in range(LAYERS):
        for part in ("key", "value"):
            toy.split(state, f"cross_{part}_{i}", f"present_{part}_cross_{i}")
    outputs = caches("present", "cross", "length")
    if starts:
        decode(toy, "decoder_input_ids", "seen", "present", past=False)
        toy("Identity", state, "encoder_hidden_states")
        inputs.append(value("decoder_input_ids", INT32, "rows", "new"))
        hidden = value("encoder_hidden_states", FLOAT, "rows", "length", WIDTH)
        logits = value("logits", FLOAT, "rows", "new", VOCABULARY)
        outputs = [logits, hidden, *caches("present", "self", "new"), *outputs]
    return toy.graph("encoder", inputs, outputs)


def decoder(*, audio: bool, hidden: bool) -> onnx.GraphProto:
    toy = Toy()
    inputs = [value("input_ids", INT32, "rows", 1)]
    if audio:
        toy.weights["seen"] = np.ones((1, 1, 1, 1), np.float32)
    else:
        toy.see("encoder_attention_mask")
        inputs.append(value("encoder_attention_mask", INT32, "rows", "length"))
    if hidden:
        inputs.append(value("encoder_hidden_states", FLOAT, "rows", "length", WIDTH))
    decode(toy, "input_ids", "seen", "past", past=True)
    inputs += caches("past", "self", "past") + caches("past", "cross", "length")
    logits = value("logits", FLOAT, "rows", 1, VOCABULARY)
    return toy.graph("decoder", inputs, [logits, *caches("present", "self", "all")])


GRAPHS = {
    "gpt": gpt,
    "t5 encoder": lambda: encoder(audio=False, starts=False),
    "t5 decoder": lambda: decoder(audio=False, hidden=False),
    "bart encoder": lambda: encoder(audio=False, starts=True),
    "bart decoder": lambda: decoder(audio=False, hidden=True),
    "whisper encoder": lambda: encoder(audio=True, starts=True),
    "whisper decoder": lambda: decoder(audio=True, hidden=False),
}
