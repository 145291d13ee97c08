from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from everywhere import varint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tenonnx.errors import InvalidGraph, InvalidProtobuf
from tenonnx.formats.load import load
from tenonnx.formats.wire import (
    MAX_NESTED_MESSAGES,
    MAX_PROTOBUF_LIST_BYTES,
    MIN_REFERENCED_BYTES,
    Skeleton,
    skim,
)
from tenonnx.weights.registry import WeightRegistry

TP = onnx.TensorProto

names = st.text(st.characters(categories=["L", "N"]), max_size=5)


@st.composite
def tensors(draw: st.DrawFn, name: str | None = None) -> onnx.TensorProto:
    dtype = draw(
        st.sampled_from([TP.FLOAT, TP.DOUBLE, TP.INT64, TP.INT32, TP.FLOAT16, TP.UINT8, TP.STRING])
    )
    shape = draw(st.lists(st.integers(0, 9), max_size=3))
    count = int(np.prod(shape))
    raw = draw(st.booleans()) and dtype != TP.STRING
    values: Any = [str(n) for n in range(count)] if dtype == TP.STRING else np.arange(count) % 100
    if raw:
        values = values.astype(helper.tensor_dtype_to_np_dtype(dtype)).tobytes()
    name = draw(names) if name is None else name
    tensor = helper.make_tensor(name, dtype, shape, values, raw)
    tensor.doc_string = draw(names)
    return tensor


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TP.FLOAT, ["n"])


@st.composite
def graphs(draw: st.DrawFn, depth: int = 2) -> onnx.GraphProto:
    nodes = []
    for number in range(draw(st.integers(0, 4))):
        attributes: dict[str, Any] = {"i": 7, "text": draw(names), "floats": [1.5] * 40}
        if draw(st.booleans()):
            attributes["value"] = draw(tensors())
        if draw(st.booleans()):
            attributes["values"] = draw(st.lists(tensors(), min_size=1, max_size=3))
        if depth and draw(st.booleans()):
            attributes["body"] = draw(graphs(depth - 1))
        if depth and draw(st.booleans()):
            attributes["bodies"] = draw(st.lists(graphs(depth - 1), min_size=1, max_size=2))
        node = helper.make_node("Op", [], [f"{depth}_{number}"], domain="own", **attributes)
        nodes.append(node)
    count = draw(st.integers(0, 3))
    initializers = [draw(tensors(f"w{depth}_{number}")) for number in range(count)]
    graph = helper.make_graph(nodes, "g", [], [], initializers, doc_string="d" * 200)
    if draw(st.booleans()):
        values = helper.make_tensor(f"s{depth}", TP.FLOAT, [40], np.ones(40))
        places = helper.make_tensor("", TP.INT64, [40], range(40))
        sparse = helper.make_sparse_tensor(values, places, [60])
        graph.sparse_initializer.append(sparse)
    return graph


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    graph = draw(graphs())
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", f"f{number}", [], [], draw(graphs()).node, opsets)
        for number in range(draw(st.integers(0, 2)))
    ]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions)
    helper.set_model_props(model, {"key": "v" * 200})
    if draw(st.booleans()):
        model.training_info.add().initialization.CopyFrom(draw(graphs(1)))
    return model


def tensors_of(message: Any) -> Iterator[onnx.TensorProto]:
    for field, content in message.ListFields():
        if field.message_type is None:
            continue
        for item in content if hasattr(content, "add") else [content]:
            if isinstance(item, onnx.TensorProto):
                yield item
            elif not isinstance(item, onnx.SparseTensorProto):
                yield from tensors_of(item)


def restore(skeleton: Skeleton, data: bytes) -> tuple[onnx.ModelProto, int]:
    """Put the content back into a skeleton; return the model and how many tensors it took."""
    model = onnx.ModelProto.FromString(skeleton.data)
    count = 0
    for tensor in tensors_of(model):
        if tensor.data_location != TP.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        assert entries.keys() == {"location", "offset", "length"}
        assert entries["location"] == skeleton.location
        start, length = int(entries["offset"]), int(entries["length"])
        assert length >= MIN_REFERENCED_BYTES
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = data[start : start + length]
        count += 1
    return model, count


def with_raw_data(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every float and double tensor of a skeleton's size as raw data."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in tensors_of(copy):
        for field, width in (("float_data", 4), ("double_data", 8)):
            if len(getattr(tensor, field)) * width >= MIN_REFERENCED_BYTES:
                tensor.raw_data = numpy_helper.to_array(tensor).tobytes()
                tensor.ClearField(field)
    return copy


@settings(suppress_health_check=list(HealthCheck))
@given(model=models())
def test_skeleton_and_views_are_the_model(model: onnx.ModelProto) -> None:
    data = model.SerializeToString()
    skeleton = skim(memoryview(data))
    restored, count = restore(skeleton, data)
    expected = with_raw_data(model)
    assert restored == expected
    long = [t for t in tensors_of(expected) if len(t.raw_data) >= MIN_REFERENCED_BYTES]
    assert count == len(long)
    if not long:
        assert skeleton.data == data


def test_a_model_cannot_name_the_buffer_itself() -> None:
    data = model_of(np.ones(100, np.float32)).SerializeToString()
    first, second = skim(memoryview(data)), skim(memoryview(data))
    assert first.location != second.location
    assert first.location.encode() not in data


def model_of(*arrays: Any, **fields: Any) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(array, f"w{n}") for n, array in enumerate(arrays)]
    return helper.make_model(helper.make_graph([], "g", [], [], initializers), **fields)


def small_model() -> onnx.ModelProto:
    array = np.arange(40, dtype=np.float32)
    branch = helper.make_graph([], "b", [], [], [numpy_helper.from_array(array, "inner")])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(array, "v")),
        helper.make_node("If", ["c"], [], then_branch=branch, else_branch=branch),
    ]
    floats = helper.make_tensor("floats", TP.FLOAT, [40], array)
    tiny = numpy_helper.from_array(array[:3].copy(), "tiny")
    graph = helper.make_graph(nodes, "g", [value("x")], [value("c")], [floats, tiny])
    return helper.make_model(graph)


def loads(data: bytes, registry: WeightRegistry) -> ir.Model | None:
    """Return the model if the bytes are one; any error but those two escapes."""
    try:
        return load(data, registry)
    except (InvalidProtobuf, InvalidGraph):
        return None


@pytest.mark.filterwarnings("ignore")
def test_every_truncation_is_an_error_or_a_whole_model(registry: WeightRegistry) -> None:
    data = small_model().SerializeToString()
    whole = [stop for stop in range(len(data) + 1) if loads(data[:stop], registry)]
    assert whole[-1] == len(data)
    for stop in whole:
        assert onnx.ModelProto.FromString(data[:stop]).graph == small_model().graph


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=10 * settings().max_examples, suppress_health_check=list(HealthCheck))
@given(
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=3)
)
def test_flipped_bytes_are_an_error_or_what_onnx_reads(
    registry: WeightRegistry, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(small_model().SerializeToString())
    for place, change in changes:
        data[place % len(data)] ^= change
    model = loads(bytes(data), registry)
    if model is not None:
        proto = onnx.ModelProto.FromString(bytes(data))
        for tensor in proto.graph.initializer:
            if tensor.name:
                found = model.graph.initializers[tensor.name].const_value
                assert found is not None
                expected = numpy_helper.to_array(tensor)
                assert found.numpy().tobytes() == expected.tobytes()


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=4 * settings().max_examples, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=400))
def test_random_bytes_are_an_error(registry: WeightRegistry, data: bytes) -> None:
    loads(data, registry)


@given(data=st.binary(max_size=200))
def test_what_the_scan_accepts_it_does_not_change(data: bytes) -> None:
    try:
        skeleton = skim(memoryview(data), threshold=10**6)
    except InvalidProtobuf:
        return
    assert skeleton.data == data


def field(number: int, content: bytes) -> bytes:
    length = bytearray()
    size = len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    tag = number << 3 | 2
    prefix = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    return prefix + bytes([*length, size]) + content


FILLER = field(2, b"n" * 200)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80" * 11, "at byte 0: expected a number of at most 10 bytes, found more"),
        (b"\x80" * 5, "at byte 0: expected a number of at most 10 bytes, found the end"),
        (b"\x08", "at byte 1: expected a number of at most 10 bytes, found the end"),
        (b"\x3a\x05abc", "at byte 1: expected a length up to 3, found 5"),
        (b"\x3a" + b"\xff" * 9 + b"\x01", "expected a length up to 0, found 18446744073709551615"),
        (b"\x3a", "at byte 1: expected a number of at most 10 bytes, found the end"),
        (b"\x0b\x0c", "at byte 0: expected the tag of a field, found field 1 of wire type 3"),
        (b"\x05abcd", "at byte 0: expected the tag of a field, found field 0 of wire type 5"),
        (b"\x00\x00", "at byte 0: expected the tag of a field, found field 0 of wire type 0"),
        (b"\x0f", "at byte 0: expected the tag of a field, found field 1 of wire type 7"),
        (b"\x09abc", "at byte 1: expected 8 bytes, found 3"),
        (b"\x38\x01", "at byte 0: expected a message in field 7, found wire type 0"),
        (field(7, FILLER + b"\x08\x01"), "at byte 206: expected a message in field 1"),
        (field(7, field(5, FILLER + b"\x4a\x7f")), "at byte 210: expected a length up to 0"),
    ],
)
def test_malformed_bytes_say_where_and_what(data: bytes, message: str) -> None:
    with pytest.raises(InvalidProtobuf) as caught:
        skim(memoryview(data))
    assert message in str(caught.value)


@pytest.mark.parametrize("depth", [30, MAX_NESTED_MESSAGES, 10_000])
def test_hostile_nesting(registry: WeightRegistry, depth: int) -> None:
    graph = FILLER
    for _ in range(depth):
        graph = field(1, field(5, field(6, graph)))  # node, attribute, graph
    data = field(7, graph)
    if depth == 30:
        assert skim(memoryview(data)).data == data
    else:
        with pytest.raises(InvalidProtobuf, match="at most 100 nested messages"):
            load(data, registry)


def test_a_huge_length_allocates_nothing() -> None:
    data = b"\x3a" + b"\xff\xff\xff\xff\xff\xff\xff\x7f" + b"x" * 1000
    with pytest.raises(InvalidProtobuf, match="expected a length up to 1000"):
        skim(memoryview(data))


def test_external_data_of_the_models_own_is_left_alone() -> None:
    model = model_of(np.ones(100, np.float32))
    tensor = model.graph.initializer[0]
    tensor.data_location = TP.EXTERNAL
    tensor.external_data.add(key="location", value="elsewhere")
    data = model.SerializeToString()
    assert skim(memoryview(data)).data == data


def test_content_in_several_pieces_is_left_to_protobuf() -> None:
    half = np.ones(40, np.float32).tobytes()
    tensor = TP(name="w", data_type=TP.FLOAT, dims=[80]).SerializeToString()
    data = field(7, field(5, tensor + field(4, half) + field(4, half)))
    assert skim(memoryview(data)).data == data


def test_time_goes_with_messages_not_with_bytes(tmp_path: Path) -> None:
    before = model_of(np.zeros(64, np.float32)).SerializeToString()
    content = before.index(bytes(256))
    size = 3 << 30
    assert before[content - 3 : content] == b"\x4a\x80\x02", "raw_data of 256 bytes"
    tensor = before[before.index(b"\x2a\x8b\x02") + 3 : content - 3]
    tensor = tensor.replace(b"\x08\x40", b"\x08\x80\x80\x80\x80\x03")
    raw = b"\x4a\x80\x80\x80\x80\x0c"
    body = varint(len(tensor) + len(raw) + size)
    graph = b"\x2a" + body + tensor + raw
    head = b"\x08\x08\x3a" + varint(len(graph) + size) + graph
    path = tmp_path / "sparse.onnx"
    path.write_bytes(head)
    with path.open("r+b") as file:
        file.truncate(len(head) + size)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
            buffer = memoryview(pages)
            begin = time.process_time()
            skeleton = skim(buffer)
            assert time.process_time() - begin < 1
            buffer.release()
    assert len(skeleton.data) < 500
    (restored,) = onnx.ModelProto.FromString(skeleton.data).graph.initializer
    assert [entry.value.lstrip("0") for entry in restored.external_data][1:] == [
        str(len(head)),
        str(size),
    ]
    assert list(restored.dims) == [size // 4]


@pytest.mark.parametrize(
    "content", [[*range(-200, 200)], [*range(-500, 500)], [0.5] * 500, ["word"] * 500]
)
def test_attributes_of_numbers_and_words_are_not_looked_into(content: Any) -> None:
    tensor = numpy_helper.from_array(np.arange(99))
    node = helper.make_node("N", ["x"], ["y"], many=content, one=tensor)
    whole = helper.make_model(helper.make_graph([node], "g", [], [])).SerializeToString()
    (kept,) = onnx.ModelProto.FromString(skim(memoryview(whole)).data).graph.node
    many, one = sorted(kept.attribute, key=lambda attribute: attribute.name)
    written = next(a for a in node.attribute if a.name == "many")
    assert (many == written) == (written.ByteSize() <= MAX_PROTOBUF_LIST_BYTES)
    assert one.t.data_location == TP.EXTERNAL
    place = whole.index(written.SerializeToString()) + len(b"\n\x04many")
    broken = whole[:place] + b"\xff" * 11 + whole[place + 11 :]
    skim(memoryview(broken))
    with pytest.raises(InvalidProtobuf, match="at byte"):
        skim(memoryview(broken), threshold=0)
