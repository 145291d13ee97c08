"""Models with tensors in every place that can hold one, and what loading makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from tenonnx.formats.load import load
from tenonnx.weights.registry import Weight, WeightRegistry
from tenonnx.weights.tensors import WeightTensor

TP = onnx.TensorProto


def array(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape or (64, 3), np.float32)


def tensor(seed: int, name: str = "") -> onnx.TensorProto:
    return numpy_helper.from_array(array(seed), name)


def everywhere() -> onnx.ModelProto:
    """A model with a tensor in every place that can hold one; the n-th is ``array(n)``."""
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["y"], value=tensor(4))], "inner", [],
        [helper.make_tensor_value_info("y", TP.FLOAT, None)], [tensor(3, "inner")],
    )  # fmt: skip
    branch = helper.make_graph(
        [helper.make_node("If", ["cond"], ["y"], then_branch=inner, else_branch=inner)], "branch",
        [], [helper.make_tensor_value_info("y", TP.FLOAT, None)], [tensor(2, "outer")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Constant", [], ["constant"], value=tensor(1)),
        helper.make_node("If", ["cond"], ["z"], then_branch=branch, else_branch=branch),
        helper.make_node("Own", [], ["own"], domain="own", several=[tensor(5), tensor(6)]),
    ]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    body = [helper.make_node("Constant", [], ["out"], value=tensor(7))]
    function = helper.make_function("own", "Own", [], ["out"], body, opsets)
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("cond", TP.BOOL, [])],
        [helper.make_tensor_value_info("z", TP.FLOAT, None)],
        [tensor(0, "weight"), numpy_helper.from_array(np.array([1, 2]), "tiny")],
    )
    return helper.make_model(graph, opset_imports=opsets, functions=[function])


def attribute_tensors(node: ir.Node) -> Iterator[ir.TensorProtocol]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.TENSOR:
            yield attribute.value
        elif attribute.type == ir.AttributeType.TENSORS:
            yield from attribute.value


def tensors_of(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            assert value.const_value is not None
            yield value.const_value
    functions = model.functions.values()
    for node in [*model.graph.all_nodes(), *(n for f in functions for n in f.all_nodes())]:
        yield from attribute_tensors(node)


def weights_of(model: ir.Model) -> list[Weight]:
    found = list(tensors_of(model))
    assert all(isinstance(tensor, WeightTensor) for tensor in found)
    return [tensor.weight for tensor in found if isinstance(tensor, WeightTensor)]


def weight(model: ir.Model, name: str) -> Weight:
    found = model.graph.initializers[name].const_value
    assert isinstance(found, WeightTensor)
    return found.weight


def has_every_tensor(model: ir.Model) -> None:
    found = {w.array.tobytes() for w in weights_of(model)}
    expected = {array(number).tobytes() for number in range(8)}
    assert found == {*expected, np.array([1, 2]).tobytes()}


def save(proto: onnx.ModelProto, path: Path, external: bool = False) -> Path:
    if external:
        proto = onnx.ModelProto.FromString(proto.SerializeToString())
        onnx.save(
            proto, path, save_as_external_data=True, location=path.name + "_data",
            size_threshold=100, convert_attribute=True,
        )  # fmt: skip
    else:
        onnx.save(proto, path)
    return path


def lies_in(weights: list[Weight], buffer: Any) -> None:
    pages = np.frombuffer(buffer, np.uint8)
    for found in weights:
        assert np.shares_memory(found.array, pages) == (found.nbytes >= 128)


def holder(tensor: onnx.TensorProto) -> onnx.ModelProto:
    """A model that has a tensor and nothing else."""
    return helper.make_model(helper.make_graph([], "g", [], [], [tensor]))


def external(location: str, dims: list[int] | None = None, **entries: Any) -> onnx.ModelProto:
    proto = TP(name="w", data_type=TP.FLOAT, dims=[2, 3] if dims is None else dims)
    proto.data_location = TP.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        proto.external_data.add(key=key, value=str(value))
    return holder(proto)


def fails(source: Any, registry: WeightRegistry, error: type[Exception], **options: Any) -> str:
    with pytest.raises(error) as caught:
        load(source, registry, **options)
    return str(caught.value)


def varint(number: int) -> bytes:
    encoded = []
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])
