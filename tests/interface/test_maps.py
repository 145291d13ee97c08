"""Models whose inputs or outputs are maps, and inputs as clients pass them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.dtypes import StringDType
from onnx import TensorProto, helper

import tenonnx
from models import FLOAT, INT64, model, node, value

ML = {"ai.onnx.ml": 1}


def map_value(name: str, key: int, item: int, *, sequence: bool = False) -> onnx.ValueInfoProto:
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(item, None))
    if sequence:
        kind = helper.make_sequence_type_proto(kind)
    return helper.make_value_info(name, kind)


def zipped() -> onnx.ModelProto:
    made = node("ZipMap", "x", "y", domain="ai.onnx.ml", classlabels_strings=["a", "b"])
    outputs = [map_value("y", TensorProto.STRING, FLOAT, sequence=True)]
    return model([made], [value("x", FLOAT, ["n", 2])], outputs, domains=ML)


def vectorized() -> onnx.ModelProto:
    made = node("DictVectorizer", "x", "y", domain="ai.onnx.ml", string_vocabulary=["a", "b"])
    inputs = [map_value("x", TensorProto.STRING, FLOAT)]
    return model([made], inputs, [value("y", FLOAT, [1, 2])], domains=ML)


@pytest.mark.parametrize("form", ["proto", "bytes"])
def test_map_outputs(form: str) -> None:
    proto = zipped()
    source = proto.SerializeToString() if form == "bytes" else proto
    before = proto.SerializeToString()
    session = tenonnx.InferenceSession(source)
    assert proto.SerializeToString() == before
    (y,) = session.get_outputs()
    assert y.type == "seq(map(string,tensor(float)))"
    (outputs,) = session.run(None, {"x": np.array([[0.25, 0.75]], np.float32)})
    assert outputs == [{"a": 0.25, "b": 0.75}]


def test_objects_that_are_no_strings_become_some() -> None:
    words = [value(name, TensorProto.STRING, [None, None]) for name in "xy"]
    session = tenonnx.InferenceSession(model([node("Identity", "x", "y")], words[:1], words[1:]))
    given = np.array([["a", 1], [None, 2.5]], object)
    (y,) = session.run(None, {"x": given})
    assert y.tolist() == [["a", "1"], ["None", "2.5"]]
    assert given[0, 1] == 1
    for text in (np.array([["é", "b"]]), np.array([["é", None]], StringDType(na_object=None))):
        (y,) = session.run(None, {"x": text})
        assert y.tolist() == [list(map(str, text[0]))]
        assert y.dtype == object


def test_maps_are_still_maps_in_a_model_that_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "saved.onnx"
    options = tenonnx.SessionOptions(optimized_model_filepath=str(path))
    tenonnx.InferenceSession(zipped(), options)
    onnx.checker.check_model(path)
    assert onnx.load(path).graph.output[0].type == zipped().graph.output[0].type


def test_map_inputs() -> None:
    session = tenonnx.InferenceSession(vectorized())
    (x,) = session.get_inputs()
    assert (x.type, x.shape) == ("map(string,tensor(float))", [])
    (y,) = session.run(None, {"x": {"b": 2.0}})
    assert y.tolist() == [[0, 2]]
    with pytest.raises(tenonnx.InvalidArgument, match=r"'x': expected map\(.*got ndarray"):
        session.run(None, {"x": np.zeros(2)})


def sequence_model(kind: Any) -> onnx.ModelProto:
    x = helper.make_value_info("x", kind)
    return model([node("SequenceLength", "x", "y")], [x], [value("y", INT64, [])])


@pytest.mark.parametrize(
    "items", [[np.ones(2, np.float32), np.ones(3, np.float32)], [[1.0, 2.0], [3.0]], ([1],), []]
)
def test_sequence_inputs(items: Any) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    session = tenonnx.InferenceSession(sequence_model(kind))
    assert session.get_inputs()[0].type == "seq(tensor(float))"
    assert session.run(None, {"x": items})[0] == len(items)
    assert session.run(None, {"x": tenonnx.OrtValue(list(items))})[0] == len(items)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "got None"),
        ({"a": 1}, "got dict"),
        (3, "got int"),
        ([np.ones(2)], "an item 0 of dtype float64"),
        ([["a"]], "an item 0"),
    ],
)
def test_wrong_sequences(given: Any, message: str) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    session = tenonnx.InferenceSession(sequence_model(kind))
    with pytest.raises(tenonnx.InvalidArgument, match=rf"'x': expected seq\(tensor.*{message}"):
        session.run(None, {"x": given})


def test_optional_inputs() -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    x = helper.make_value_info("x", kind)
    proto = model([node("OptionalHasElement", "x", "y")], [x], [value("y", TensorProto.BOOL, [])])
    session = tenonnx.InferenceSession(proto)
    assert session.get_inputs()[0].type == "optional(tensor(float))"
    assert session.run(None, {"x": [1.0, 2.0]})[0]
    assert not session.run(None, {"x": None})[0]
    assert not session.run(None, {})[0]


def test_facts() -> None:
    proto = model([node("Relu", "x", "y", name="r")], [value("x")], [value("y")])
    proto.producer_name, proto.domain, proto.doc_string = "tests", "com.example", "a model"
    proto.graph.doc_string, proto.model_version = "a graph", 3
    helper.set_model_props(proto, {"key": "value"})
    session = tenonnx.InferenceSession(proto)
    assert session.get_modelmeta() == tenonnx.ModelMetadata(
        "tests", "test", "com.example", "a model", "a graph", 3, {"key": "value"}
    )
    (part,) = session.get_provider_graph_assignment_info()
    assert part.ep_name == "CPUExecutionProvider"
    assert [(n.name, n.op_type, n.domain) for n in part.get_nodes()] == [("r", "Relu", "")]
    assert [info.name for info in session.get_input_memory_infos()] == ["Cpu"]
    assert [info.name for info in session.get_output_memory_infos()] == ["Cpu"]
    (device,) = session.get_input_epdevices()
    assert device is not None
    assert device.ep_name == "CPUExecutionProvider"
    made = session.create_ortvalue_from_shape_and_type([2], np.float32, "cpu")
    assert made.shape() == [2]
    session.enable_fallback()
    session.disable_fallback()
    session.release_captured_graph()
    assert session.get_tuning_results() == []
    session.set_ep_dynamic_options({})
    with pytest.raises(tenonnx.NotSupported, match="set_providers"):
        session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Default"})


def test_a_model_without_a_version() -> None:
    proto = model([node("Relu", "x", "y")], [value("x")], [value("y")])
    assert tenonnx.InferenceSession(proto).get_modelmeta().version == 2**63 - 1
