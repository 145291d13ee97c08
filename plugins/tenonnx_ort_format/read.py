"""From the tables of an ``.ort`` file to an ``onnx_ir`` model over registry weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx import InvalidGraph, InvalidProtobuf, TenonnxError, WeightRegistry, WeightTensor
from tenonnx_ort_format.flat import Row
from tenonnx_ort_format.schema import SCHEMA, TYPE_KINDS

Scope = dict[str, ir.Value]


def read_model(source: str | os.PathLike[str] | Any, registry: WeightRegistry) -> ir.Model:
    """Read a model.

    Args:
        source: A path, or a buffer that stays unchanged while the model is in use.
        registry: Where the weights go, as views of the mapped file or of the buffer.

    Raises:
        InvalidProtobuf: The file is damaged.
        InvalidGraph: It contradicts itself.
    """
    if isinstance(source, (str, os.PathLike)):
        mapping = registry.map(source)
        reader = _Reader(registry, mapping, memoryview(mapping.buffer))
    else:
        reader = _Reader(registry, registry.from_buffer(source), memoryview(source).cast("B"))
    try:
        return reader.model()
    except TenonnxError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise InvalidProtobuf(f"the .ort file contradicts itself: {error}") from error


class _Reader:
    def __init__(self, registry: WeightRegistry, storage: Any, buffer: memoryview) -> None:
        self._registry, self._storage, self._buffer = registry, storage, buffer

    def model(self) -> ir.Model:
        if len(self._buffer) < 8:
            raise InvalidProtobuf(f"an .ort file of {len(self._buffer)} bytes is truncated")
        root = int.from_bytes(self._buffer[:4], "little")
        table = Row(SCHEMA, "InferenceSession", self._buffer, root).model
        if table is None or table.graph is None:
            raise InvalidProtobuf("the .ort file holds no model")
        graph = self._graph(table.graph, ())
        graph.doc_string = table.graph_doc_string or None
        imports = {entry.domain: entry.version for entry in table.opset_import}
        graph.opset_imports.update({("" if d == "ai.onnx" else d): v for d, v in imports.items()})
        return ir.Model(
            graph,
            ir_version=table.ir_version,
            producer_name=table.producer_name or None,
            producer_version=table.producer_version or None,
            domain=table.domain or None,
            model_version=table.model_version,
            doc_string=table.doc_string or None,
            metadata_props={entry.key: entry.value for entry in table.metadata_props},
        )

    def _graph(self, table: Row, outer: Sequence[Scope]) -> ir.Graph:
        # node_args lists what a subgraph reads of its surroundings as well; only what it defines
        # itself is a value of its own.
        made = {name for node in table.nodes for name in node.outputs}
        own = made.union(table.inputs, (tensor.name for tensor in table.initializers))
        scope: Scope = {
            info.name: ir.Value(name=info.name, **_type_and_shape(info.type))
            for info in table.node_args
            if info.name and info.name in own
        }
        if table.sparse_initializers:
            raise InvalidGraph(
                "the .ort file has sparse initializers, which are not read",
                hint="load the .onnx model it was converted from",
            )
        weights = [self._initializer(tensor, scope) for tensor in table.initializers]
        scopes = (scope, *outer)
        nodes = [self._node(node, scopes) for node in table.nodes]
        return ir.Graph(
            [_lookup(name, scopes[:1]) for name in table.inputs],
            [_lookup(name, scopes) for name in table.outputs],
            nodes=nodes,
            initializers=weights,
        )

    def _initializer(self, table: Row, scope: Scope) -> ir.Value:
        tensor = self._tensor(table)
        value = scope.setdefault(table.name, ir.Value(name=table.name))
        value.const_value = tensor
        value.shape = ir.Shape(tensor.shape.numpy())
        value.type = ir.TensorType(tensor.dtype)
        return value

    def _node(self, table: Row, scopes: Sequence[Scope]) -> ir.Node:
        attributes = [self._attribute(attribute, scopes) for attribute in table.attributes]
        inputs = [_lookup(name, scopes) if name else None for name in table.inputs]
        outputs = [
            _lookup(name, scopes[:1]) if name else ir.Value(name="") for name in table.outputs
        ]
        return ir.Node(
            "" if table.domain == "ai.onnx" else table.domain,
            table.op_type,
            inputs,
            attributes,
            outputs=outputs,
            version=table.since_version or None,
            name=table.name or None,
        )

    def _attribute(self, table: Row, scopes: Sequence[Scope]) -> ir.Attr:
        kind = ir.AttributeType(table.type)
        if (kind, table.t) == (ir.AttributeType.TENSOR, None) or (
            (kind, table.g) == (ir.AttributeType.GRAPH, None)
        ):
            raise InvalidProtobuf(f"attribute {table.name!r} of the .ort file has no value")
        match kind:
            case ir.AttributeType.FLOAT:
                value: Any = table.f
            case ir.AttributeType.INT:
                value = table.i
            case ir.AttributeType.STRING:
                value = table.s
            case ir.AttributeType.TENSOR:
                value = self._tensor(table.t)
            case ir.AttributeType.GRAPH:
                value = self._graph(table.g, scopes)
            case ir.AttributeType.FLOATS:
                value = [float(number) for number in table.floats]
            case ir.AttributeType.INTS:
                value = [int(number) for number in table.ints]
            case ir.AttributeType.STRINGS:
                value = list(table.strings)
            case ir.AttributeType.TENSORS:
                value = [self._tensor(tensor) for tensor in table.tensors]
            case ir.AttributeType.GRAPHS:
                value = [self._graph(graph, scopes) for graph in table.graphs]
            case _:
                raise InvalidGraph(f"attribute {table.name!r} has a type that is not read: {kind}")
        return ir.Attr(table.name, kind, value)

    def _tensor(self, table: Row) -> ir.TensorProtocol:
        dtype, shape = ir.DataType(table.data_type), tuple(int(n) for n in table.dims)
        if dtype == ir.DataType.STRING:
            strings = np.array([s.encode() for s in table.string_data], dtype=object)
            return ir.StringTensor(strings.reshape(shape), name=table.name, shape=ir.Shape(shape))
        span = table.span("raw_data")
        if span is None and np.prod(shape, dtype=np.int64):
            raise InvalidGraph(f"tensor {table.name!r} has no data in the .ort file")
        start, length = span or (0, 0)
        try:
            weight = self._registry.view(self._storage, start, length, dtype, shape)
        except ValueError as error:
            raise InvalidGraph(f"tensor {table.name!r}: {error}") from error
        return WeightTensor(weight, name=table.name)


def _lookup(name: str, scopes: Sequence[Scope]) -> ir.Value:
    for scope in scopes:
        if name in scope:
            return scope[name]
    return scopes[0].setdefault(name, ir.Value(name=name))


def _type_and_shape(table: Row | None) -> dict[str, Any]:
    """Return the type and shape of a TypeInfo as keyword arguments of ``ir.Value``."""
    value = table.union("value", TYPE_KINDS) if table is not None else None
    if value is None:
        return {}
    if value._name == "TensorTypeAndShape":
        return {"type": ir.TensorType(ir.DataType(value.elem_type)), "shape": _shape(value.shape)}
    if value._name == "SequenceType":
        inner = _type_and_shape(value.elem_type).get("type")
        return {"type": ir.SequenceType(inner)} if inner else {}
    return {}


def _shape(table: Row | None) -> ir.Shape | None:
    if table is None:
        return None
    dims: list[int | str | None] = []
    for dimension in table.dim:
        value = dimension.value
        kind = value.dim_type if value is not None else 0
        dims.append(value.dim_value if kind == 1 else value.dim_param if kind == 2 else None)
    return ir.Shape(dims)
