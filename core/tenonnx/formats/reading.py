"""From a model as protobuf has it to one of onnx_ir, whose tensors are weights, in one walk.

onnx_ir's own reader, which this one agrees with, takes three times as long for a node and four
times for a weight. It reads types, attributes and functions here, too.
"""

from __future__ import annotations

import itertools
import logging
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import onnx
import onnx_ir as ir

from tenonnx.errors import InvalidGraph
from tenonnx.formats.tensors import TensorReader
from tenonnx.graph import OFTEN, label
from tenonnx.process import interruption

log = logging.getLogger("tenonnx.loading")

TENSOR, TENSORS = onnx.AttributeProto.TENSOR, onnx.AttributeProto.TENSORS
GRAPH, GRAPHS = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS

# The version of the format from which on a function has what is said of its values.
SAYS_OF_FUNCTIONS: Final = 10

Scopes: TypeAlias = "tuple[dict[str, ir.Value], ...]"
"""The values of a graph by name, and of each graph around it, the innermost first."""

Said: TypeAlias = Mapping[str, onnx.ValueInfoProto]

say = ir.serde.deserialize_value_info_proto
metadata = ir.serde.deserialize_metadata_props


def read_model(proto: onnx.ModelProto, tensors: TensorReader) -> ir.Model:
    """Return a model; the tensors of its functions are not weights yet.

    Raises:
        ValueError: A graph makes a value twice; or what onnx_ir raises of a malformed type.
        InvalidGraph: A tensor contradicts itself, or an attribute refers to a function's.
    """
    read = ir.serde.deserialize_model_configuration
    devices = {each.name: read(each) for each in proto.configuration}
    graph = _GraphReader(tensors, devices).read(proto.graph, ())
    graph.opset_imports.update(ir.serde.deserialize_opset_import(proto.opset_import))
    functions = [ir.serde.deserialize_function(each) for each in proto.functions]
    if functions and proto.ir_version < SAYS_OF_FUNCTIONS:
        _say_of_functions(functions, proto.graph.value_info)
    words = ("producer_name", "producer_version", "domain", "model_version", "doc_string")
    return ir.Model(
        graph,
        ir_version=proto.ir_version,
        functions=functions,
        metadata_props=metadata(proto.metadata_props),
        device_configurations=tuple(devices.values()),
        **{name: _field(proto, name) for name in words},
    )


def refuse_references(node: ir.Node) -> None:
    """Refuse attributes that are a function's, which only nodes of a function may have."""
    for name, attribute in node.attributes.data.items():
        if attribute.is_ref():
            raise InvalidGraph(
                f"{label(node)}: attribute {name} refers to {attribute.ref_attr_name}, an "
                "attribute of a function, outside any function"
            )


class _GraphReader:
    def __init__(self, tensors: TensorReader, devices: Mapping[str, Any]) -> None:
        self._tensors, self._devices = tensors, devices

    def read(self, proto: onnx.GraphProto, outer: Scopes) -> ir.Graph:
        said = {info.name: info for info in proto.value_info}
        inputs = [say(info, ir.Value(name=info.name)) for info in proto.input]
        own = {value.name or "": value for value in inputs}
        scopes = (own, *outer)
        initializers = list(self._initializers(proto, own, said))
        _declare(proto.node, own, said)
        nodes = list(self._nodes(proto.node, scopes, said))
        outputs = []
        for info in proto.output:
            value = own[info.name] if info.name in own else ir.Value(name=info.name)
            outputs.append(say(info, value))
        for annotation in proto.quantization_annotation:
            if (annotated := own.get(annotation.tensor_name)) is not None:
                found = metadata(annotation.quant_parameter_tensor_names)
                annotated.meta["quant_parameter_tensor_names"] = found
        graph = ir.Graph(
            inputs,
            outputs,
            nodes=nodes,
            initializers=initializers,
            doc_string=_field(proto, "doc_string"),
            name=_field(proto, "name"),
            metadata_props=metadata(proto.metadata_props),
        )
        for value, info in zip(inputs, proto.input, strict=True):
            if value.is_graph_output():  # what is said of it as an input counts
                say(info, value)
        return graph

    def _initializers(
        self, proto: onnx.GraphProto, own: dict[str, ir.Value], said: Said
    ) -> Iterator[ir.Value]:
        for name, tensor in self._tensors.initializers(proto.initializer):
            if not name:
                log.warning("an initializer of the graph '%s' has no name; it is left", proto.name)
                continue
            if (value := own.get(name)) is not None:
                value.const_value = tensor
            else:
                kind = ir.TensorType(tensor.dtype)
                shape: Any = tensor.shape  # of the class that is wanted, which its protocol is not
                value = ir.Value(name=name, type=kind, shape=shape, const_value=tensor)
                if name in said:
                    say(said[name], value)
                own[name] = value
            yield value

    def _nodes(
        self, protos: Iterable[onnx.NodeProto], scopes: Scopes, said: Said
    ) -> Iterator[ir.Node]:
        """Yield nodes whose outputs are values already. The hot loop: a turn for every node."""
        own = scopes[0]
        for number, proto in enumerate(protos):
            if not number % OFTEN:
                interruption.check()
            inputs = [
                own[name] if name in own else _value_around(name, scopes, said) if name else None
                for name in proto.input
            ]
            outputs = [own[name] if name else ir.Value(name="") for name in proto.output]
            attributes = [self._attribute(each, proto, scopes) for each in proto.attribute]
            node = ir.Node(
                proto.domain,
                proto.op_type,
                inputs,
                attributes,
                overload=proto.overload,
                outputs=outputs,
                name=proto.name,
                doc_string=proto.doc_string or None,
                metadata_props=metadata(proto.metadata_props),
            )
            if attributes:
                refuse_references(node)
            if self._devices:
                node.device_configurations = tuple(self._placed(proto, scopes))
            yield node

    def _attribute(
        self, proto: onnx.AttributeProto, node: onnx.NodeProto, scopes: Scopes
    ) -> ir.Attr:
        kind, name, about = proto.type, proto.name, proto.doc_string or None
        if kind not in (TENSOR, TENSORS, GRAPH, GRAPHS) or proto.ref_attr_name:
            return ir.serde.deserialize_attribute(proto)
        if kind == GRAPH:
            return ir.AttrGraph(name, self.read(proto.g, scopes), about)
        if kind == GRAPHS:
            return ir.AttrGraphs(name, [self.read(graph, scopes) for graph in proto.graphs], about)
        owner = f"{name} of {node.name or node.op_type}"
        if kind == TENSOR:
            return ir.AttrTensor(name, self._tensors.of_proto(proto.t, owner), about)
        found = [self._tensors.of_proto(tensor, owner) for tensor in proto.tensors]
        return ir.AttrTensors(name, found, about)

    def _placed(self, proto: onnx.NodeProto, scopes: Scopes) -> Iterator[Any]:
        """Yield on which of the model's devices a node is to be, which nobody here asks."""
        import dataclasses  # few models say so

        for each in proto.device_configurations:
            found = ir.serde.deserialize_node_device_configuration(each, values=ChainMap(*scopes))
            known = found.configuration and self._devices.get(found.configuration.name)
            yield dataclasses.replace(found, configuration=known or found.configuration)


def _declare(protos: Iterable[onnx.NodeProto], own: dict[str, ir.Value], said: Said) -> None:
    """Make the values that nodes make, so that nodes before these may read them."""
    for proto in protos:
        for name in proto.output:
            if not name:
                continue
            if name in own:
                raise ValueError(
                    f"Output '{name}' is redeclared by {proto.op_type} '{proto.name}': an input, "
                    "an initializer or another node's output is called so"
                )
            own[name] = value = ir.Value(name=name)
            if name in said:
                say(said[name], value)


def _value_around(name: str, scopes: Scopes, said: Said) -> ir.Value:
    """Return a value of the graphs around one, or a new one that nothing makes."""
    for values in itertools.islice(scopes, 1, None):
        if name in values:
            return values[name]
    value = scopes[0][name] = ir.Value(name=name)
    return say(said[name], value) if name in said else value


def _say_of_functions(
    functions: Iterable[ir.Function], infos: Iterable[onnx.ValueInfoProto]
) -> None:
    """Give values of functions what a model's graph says of them, as domain::function/value."""
    said = {info.name: info for info in infos}
    for function in functions:
        made = (value for node in function for value in node.outputs)
        for value in itertools.chain(function.inputs, made):
            info = said.get(f"{function.domain}::{function.name}/{value.name}")
            if info is not None:
                say(info, value)


def _field(proto: Any, name: str) -> Any:
    return getattr(proto, name) if proto.HasField(name) else None
