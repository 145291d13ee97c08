"""Sparse tensors, which onnx_ir does not read: each becomes a dense weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from tenonnx.errors import InvalidGraph

if TYPE_CHECKING:
    from tenonnx.storage import NDArray
    from tenonnx.tensors import TensorReader
    from tenonnx.weight import Weight

TENSOR, SPARSE = onnx.AttributeProto.TENSOR, onnx.AttributeProto.SPARSE_TENSOR
GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def has_sparse(proto: onnx.ModelProto) -> bool:
    """Tells whether a model has sparse initializers or constants."""
    if any(graph.sparse_initializer for graph in _graphs(proto.graph)):
        return True
    return any(a.type == SPARSE for node in _nodes(proto) for a in node.attribute)


def densify(proto: onnx.ModelProto, reader: TensorReader) -> None:
    """Replaces sparse initializers and constants by tensors that the reader knows as dense."""
    for graph in _graphs(proto.graph):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_placeholder(sparse, sparse.values.name, reader))
        graph.ClearField("sparse_initializer")
    for node in _nodes(proto):
        for attribute in node.attribute:
            if attribute.type == SPARSE and node.op_type == "Constant":
                tensor = _placeholder(attribute.sparse_tensor, f"output of {node.name}", reader)
                attribute.ClearField("sparse_tensor")
                attribute.name, attribute.type = "value", TENSOR
                attribute.t.CopyFrom(tensor)


def _placeholder(
    sparse: onnx.SparseTensorProto, name: str, reader: TensorReader
) -> onnx.TensorProto:
    weight = _dense(sparse, name, reader)
    location = f"sparse:{weight.key}"
    reader.known[location] = weight
    tensor = onnx.TensorProto(name=name, data_type=weight.dtype, dims=weight.shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def _dense(sparse: onnx.SparseTensorProto, name: str, reader: TensorReader) -> Weight:
    shape = tuple(sparse.dims)
    values = reader.weight(ir.serde.deserialize_tensor(sparse.values), name)
    indices = reader.weight(ir.serde.deserialize_tensor(sparse.indices), name)
    if min(shape, default=0) < 0 or indices.dtype != ir.DataType.INT64 or len(values.shape) != 1:
        raise InvalidGraph(f"sparse tensor {name!r} needs flat values, int64 indices and a shape")

    def fill(out: NDArray) -> None:
        out[...] = 0
        out.reshape(-1)[_flat(indices.array, shape, name)] = values.array

    key = f"dense:1:{values.key}:{indices.key}:{shape}"
    return reader.registry.materialize(key, values.dtype, shape, fill)


def _flat(indices: NDArray, shape: tuple[int, ...], name: str) -> NDArray:
    """Returns positions in the flat tensor: indices are those, or one row of coordinates each."""
    if indices.ndim == 2 and indices.shape[1] == len(shape):
        if ((indices >= 0) & (indices < np.array(shape))).all():
            flat: NDArray = np.ravel_multi_index(tuple(indices.T), shape)
            return flat
    elif indices.ndim == 1 and ((indices >= 0) & (indices < np.prod(shape))).all():
        return indices
    raise InvalidGraph(f"sparse tensor {name!r} has indices outside of its shape {shape}")


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        yield from _subgraphs(node)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type in GRAPHS:
            for graph in (attribute.g, *attribute.graphs):
                yield from _graphs(graph)


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for graph in _graphs(proto.graph):
        yield from graph.node
    for function in proto.functions:
        for node in function.node:
            yield node
            for graph in _subgraphs(node):
                yield from graph.node
