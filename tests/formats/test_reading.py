"""A model is what onnx_ir reads, but for its tensors, which are weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from models import FLOAT, graph, model, node, value
from tenonnx.formats.load import load
from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.tensors import WeightTensor

W = np.arange(4, dtype=np.float32)


def written(read: ir.Model) -> onnx.ModelProto:
    """Return a model as it is saved, with all tensors as their bytes."""
    proto = ir.serde.serialize_model(read)
    for tensor in tensors_of(proto.graph):
        if tensor.data_type != TensorProto.STRING and not tensor.HasField("raw_data"):
            raw = numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data
            for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(field)
            tensor.raw_data = raw
    return proto


def tensors_of(holder: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from holder.initializer
    for attribute in (attribute for each in holder.node for attribute in each.attribute):
        if attribute.HasField("t"):
            yield attribute.t
        yield from tensors_of(attribute.g)


def agree(proto: onnx.ModelProto) -> ir.Model:
    found = load(proto, WeightRegistry())
    assert written(found) == written(ir.serde.deserialize_model(proto))
    return found


def rich() -> onnx.ModelProto:
    """Return a model with something of nearly all that a model can have."""
    inner = graph(
        [node("Mul", "x inside", "m", name="product"), node("Add", "m later", "made")],
        [],
        [value("made", FLOAT, [4])],
        {"inside": W},
    )
    nodes = [
        node("If", "c", "r", then_branch=inner, else_branch=inner),
        node("Constant", "", "k", value=numpy_helper.from_array(W, "k")),
        node("Split", "x", "_ half", axis=0, num_outputs=2, doc_string="of two"),
        node("Neg", "k", "later"),
        node("Clip", "half _ top", "clipped"),
        node("Concat", "clipped r k later words", "y", axis=0),
    ]
    weights = {
        "c": np.array(True),
        "top": W[1],
        "w": W,
        "again": W,
        "words": np.array(["a"], object),
    }
    proto = model(nodes, [value("x", FLOAT, ["n"]), value("w")], [value("y"), value("w")], weights)
    proto.graph.value_info.append(value("half", FLOAT, [2]))
    proto.graph.value_info.append(value("c", TensorProto.BOOL, []))
    proto.graph.node[1].metadata_props.add(key="from", value="here")
    proto.graph.initializer[2].doc_string = "four numbers"
    noted = proto.graph.quantization_annotation.add(tensor_name="half")
    noted.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="top")
    proto.metadata_props.add(key="author", value="nobody")
    proto.producer_name, proto.doc_string = "tests", "rich"
    return proto


def with_functions(version: int) -> onnx.ModelProto:
    proto = parser.parse_model(
        f"""<ir_version: {version}, opset_import: ["" : 21, "own" : 1]>
        g (float[4] x) => (float[4] y) {{ y = own.twice <by = 2.0> (x) }}
        <domain: "own", opset_import: ["" : 21]> twice <by> (a) => (b) {{
            k = Constant <value_float: float = @by> ()
            b = Mul (a, k)
        }}"""
    )
    for name in "abk":
        proto.graph.value_info.append(value(f"own::twice/{name}", FLOAT, [4]))
    return proto


def with_devices() -> onnx.ModelProto:
    proto = model([node("Neg", "x", "h"), node("Neg", "h", "y")], [value("x")], [value("y")])
    proto.ir_version = 11
    proto.configuration.add(name="two", num_devices=2)
    placed = proto.graph.node[0].device_configurations.add(configuration_id="two")
    placed.sharding_spec.add(tensor_name="x", device=[0, 1])
    return proto


MODELS = {
    "of all kinds": rich(),
    "with functions": with_functions(10),
    "with functions, before they had types": with_functions(9),
    "with devices": with_devices(),
}


@pytest.mark.parametrize("proto", MODELS.values(), ids=MODELS)
def test_all_else_is_as_onnx_ir_reads_it(proto: onnx.ModelProto) -> None:
    agree(proto)


def test_equal_weights_are_one_and_small_ones_lie_together() -> None:
    found = agree(rich()).graph.initializers
    tensors = [found[name].const_value for name in ("w", "again", "top")]
    assert all(isinstance(tensor, WeightTensor) for tensor in tensors)
    first, second, top = (tensor.weight for tensor in tensors)  # type: ignore[union-attr]
    assert first is second
    assert first.storage is top.storage
    assert first.array.tobytes() == W.tobytes()


def test_a_weight_keeps_what_is_said_of_it() -> None:
    """onnx_ir writes the metadata of a tensor that it has read twice."""
    proto = rich()
    proto.graph.initializer[2].metadata_props.add(key="of", value="w")
    tensor = load(proto, WeightRegistry()).graph.initializers["w"].const_value
    assert tensor is not None
    assert (tensor.doc_string, tensor.metadata_props) == ("four numbers", {"of": "w"})


def test_devices_of_nodes_are_the_models() -> None:
    found = agree(with_devices())
    (placed,) = found.graph[0].device_configurations
    assert placed.configuration is found.device_configurations[0]


def test_an_initializer_without_a_name_is_left(caplog: pytest.LogCaptureFixture) -> None:
    proto = model([node("Neg", "x", "y")], [value("x")], [value("y")])
    proto.graph.initializer.append(helper.make_tensor("", FLOAT, [1], [1.0]))
    assert not load(proto, WeightRegistry()).graph.initializers
    assert "must have a name" in caplog.text
