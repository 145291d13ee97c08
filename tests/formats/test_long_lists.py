from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tenonnx.formats.load import load
from tenonnx.formats.long_lists import LongList, read
from tenonnx.formats.wire import MAX_PROTOBUF_LIST_BYTES
from tenonnx.graph import nodes
from tenonnx.weights.registry import WeightRegistry

TP = onnx.TensorProto

ANY = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.integers(0, 300), min_size=1),
    st.lists(st.floats(width=32), min_size=1),
    st.lists(st.text(max_size=40), min_size=1),
    st.lists(st.sampled_from(["LEAF", "J", "\x04", "xJ\x04LEAF", "BRANCH_LEQ"]), min_size=1),
    st.lists(st.binary(max_size=40), min_size=1),
)


@given(ANY)
def test_what_is_read_is_what_protobuf_reads(items: list[Any]) -> None:
    attribute = helper.make_attribute("name", items)
    found = read(memoryview(attribute.SerializeToString()))
    if isinstance(items[0], str | bytes):
        words = [item.encode() if isinstance(item, str) else item for item in items]
        assert found is None or [item.encode() for item in found[1]] == words
    else:
        assert found is not None
        np.testing.assert_array_equal(tuple(found[1]), items)


@given(st.lists(st.sampled_from(["LEAF", "BRANCH_LEQ", "BRANCH_LT", "é" * 15]), min_size=1))
def test_few_words_are_read(words: list[str]) -> None:
    attribute = helper.make_attribute("name", words)
    found = read(memoryview(attribute.SerializeToString()))
    assert found is not None
    assert found[1] == tuple(words)
    assert set(found[1].names) == set(words)


@pytest.mark.parametrize(
    "run",
    [
        b"\x40",  # a tag without a number
        b"\x40\x01\x40\x80",
        b"\x40" + b"\xff" * 10 + b"\x01",  # eleven bytes
        b"\x40\x01\x48\x01",  # another field behind it
        b"\x40\x01\x80\x40\x01",  # the tag in two bytes
        b"\x42\x02\x01\x02",  # packed, as protobuf reads, too
    ],
)
def test_other_runs_of_numbers_stay(run: bytes) -> None:
    assert read(memoryview(b"\n\x01n" + run + b"\xa0\x01\x07")) is None


@pytest.mark.parametrize(
    "run",
    [
        b"\x4a\x02a",  # cut short
        b"\x4a\x01a\x00",  # a byte that is a number of ours
        b"\x4a\x01a\x08\x00",  # another field behind it
        b"\x4a\x00",
        b"\x4a\x01\xff",
        b"".join(b"\x4a\x01" + bytes([65 + n]) for n in range(17)),  # too many
        b"\x4a\x21" + b"a" * 33,
    ],
)
def test_other_runs_of_words_stay(run: bytes) -> None:
    assert read(memoryview(b"\n\x01n" + run + b"\xa0\x01\x08")) is None


def made(inner: onnx.GraphProto | None = None, **lists: Any) -> onnx.ModelProto:
    domain = "ai.onnx.ml"
    attributes = {"then": inner} if inner else {}
    layers = [
        helper.make_node("Identity", ["x"], ["h"]),
        helper.make_node("Any", ["h"], ["y"], "it", domain=domain, **lists, **attributes),
    ]
    values = [helper.make_tensor_value_info(name, TP.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(layers, "test", values[:1], values[1:])
    body = [helper.make_node("Any", ["a"], ["b"], **lists)]
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    return helper.make_model(graph, functions=[function])


LISTS: dict[str, Any] = {
    "coefficients": (np.arange(3000) / 7).astype(np.float32).tolist(),
    "vectors": list(range(-2000, 2000)),
    "modes": ["LEAF", "BRANCH_LEQ"] * 400,
    "words": [f"word {n}" for n in range(1000)],
    "n": [1],
}


def test_long_lists_are_as_in_the_file_wherever_they_are(registry: WeightRegistry) -> None:
    inner = made(**LISTS).graph
    proto = made(inner, **LISTS)
    model = load(proto.SerializeToString(), registry)
    assert ir.serde.serialize_node(model.graph[1]) == proto.graph.node[1]
    (function,) = model.functions.values()
    assert ir.serde.serialize_function(function) == proto.functions[0]
    found = [*nodes(model.graph), *nodes(function.graph)]
    every = [node.attributes for node in found if node.op_type == "Any"]
    assert len(every) == 3
    for attributes in every:
        kinds = {name: type(attributes[name].value) for name in LISTS}
        assert kinds.pop("n") is kinds.pop("words") is tuple
        assert set(kinds.values()) == {LongList}
        assert not any(attribute.doc_string for attribute in attributes.values())


def test_short_lists_and_documented_ones_are_left_to_protobuf(registry: WeightRegistry) -> None:
    proto = made(
        short=[1] * (MAX_PROTOBUF_LIST_BYTES // 2 - 20), long=[1] * MAX_PROTOBUF_LIST_BYTES
    )
    proto.graph.node[1].attribute.add().CopyFrom(
        helper.make_attribute("told", [1] * MAX_PROTOBUF_LIST_BYTES, doc_string="what it is")
    )
    attributes = load(proto.SerializeToString(), registry).graph[1].attributes
    assert type(attributes["long"].value) is LongList
    assert type(attributes["short"].value) is type(attributes["told"].value) is tuple
    assert attributes["told"].doc_string == "what it is"


def test_a_list_is_a_sequence() -> None:
    words = LongList(np.array([1, 0, 1], np.uint8), ["a", "b"])
    assert (words[0], words[-1], words[1:], len(words)) == ("b", "b", ("a", "b"), 3)
    assert np.array(words).tolist() == ["b", "a", "b"]
    assert repr(words) == repr(("b", "a", "b"))
    numbers = LongList(np.array([3, -1]))
    assert (numbers[0], type(numbers[-1]), numbers[:1]) == (3, int, (3,))
    assert np.asarray(numbers, np.float32).dtype == np.float32
    assert np.array(numbers, np.intp).flags.writeable
    with pytest.raises(IndexError):
        numbers[2]
    same = LongList(np.array([3, -1]))
    assert hash(numbers) == hash(same)
    assert [numbers == other for other in (same, (3, -1), words, "x")] == [True, True, False, False]
    assert numbers != LongList(np.array([3, -2]))
