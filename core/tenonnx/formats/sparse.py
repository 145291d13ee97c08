"""Sparse tensors, which onnx_ir does not read: each becomes a dense weight."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
import onnx_ir as ir

from tenonnx.errors import InvalidGraph
from tenonnx.formats.tensors import MAX_RANK, TensorReader
from tenonnx.weights.storage import byte_size, is_packed

if TYPE_CHECKING:
    from tenonnx.weights.storage import NDArray
    from tenonnx.weights.weight import Weight

TENSOR, SPARSE = onnx.AttributeProto.TENSOR, onnx.AttributeProto.SPARSE_TENSOR


# Bytes that the sparse tensors of a model may have together when dense, whatever they store.
MAX_DENSE: Final = 64 << 20

# They may have so many bytes for each that the file stores of them, if that is more.
MAX_DENSITY: Final = 1000


def has_sparse(proto: onnx.ModelProto, graphs: Iterable[onnx.GraphProto]) -> bool:
    """Return whether a model, whose graphs these are, has sparse initializers or constants."""
    return any(g.sparse_initializer for g in graphs) or any(_sparse_constants(proto, graphs))


def densify(
    proto: onnx.ModelProto, graphs: Iterable[onnx.GraphProto], reader: TensorReader
) -> None:
    """Replace sparse initializers and constants by tensors that the reader knows as dense.

    Raises:
        InvalidGraph: One is malformed, or takes more memory than the model may ask for.
    """
    making = _Densifier(reader)
    for graph in graphs:
        for sparse in graph.sparse_initializer:
            graph.initializer.append(making.placeholder(sparse, sparse.values.name))
        graph.ClearField("sparse_initializer")
    for node, attribute in _sparse_constants(proto, graphs):
        tensor = making.placeholder(attribute.sparse_tensor, f"output of {node.name}")
        attribute.ClearField("sparse_tensor")
        attribute.name, attribute.type = "value", TENSOR
        attribute.t.CopyFrom(tensor)


def _sparse_constants(
    proto: onnx.ModelProto, graphs: Iterable[onnx.GraphProto]
) -> Iterator[tuple[onnx.NodeProto, onnx.AttributeProto]]:
    for holder in (*graphs, *proto.functions):
        for node in holder.node:
            if node.op_type == "Constant":
                for attribute in node.attribute:
                    if attribute.type == SPARSE:
                        yield node, attribute


class _Densifier:
    """The dense forms of a model's sparse tensors, up to a number of bytes."""

    def __init__(self, reader: TensorReader) -> None:
        self._reader = reader
        self._stored = self._made = 0

    def placeholder(self, sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
        """Return a tensor by which the reader finds the dense weight."""
        weight = self._dense(sparse, name)
        location = f"sparse:{weight.key}"
        self._reader.known[location] = weight
        tensor = onnx.TensorProto(name=name, data_type=weight.dtype, dims=weight.shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        return tensor

    def _dense(self, sparse: onnx.SparseTensorProto, name: str) -> Weight:
        reader, shape = self._reader, tuple(sparse.dims)
        values = reader.weight(ir.serde.deserialize_tensor(sparse.values), name)
        indices = reader.weight(ir.serde.deserialize_tensor(sparse.indices), name)
        _check(name, values, indices, shape)
        self._spend(name, values.nbytes + indices.nbytes, byte_size(values.dtype, shape))

        def fill(out: NDArray) -> None:
            out[...] = 0
            out.reshape(-1)[_flat(indices.array, shape, name)] = values.array

        key = f"dense:1:{values.key}:{indices.key}:{shape}"
        return reader.registry.materialize(key, values.dtype, shape, fill, [values, indices])

    def _spend(self, name: str, stored: int, dense: int) -> None:
        self._stored += stored
        self._made += dense
        if self._made > (limit := max(MAX_DENSE, MAX_DENSITY * self._stored)):
            raise InvalidGraph(
                f"sparse tensor {name!r} takes {dense:,} bytes when dense, and those of the model "
                f"may take {limit:,} together: {MAX_DENSITY} for each that is stored of them, or "
                f"{MAX_DENSE >> 20} MiB",
                hint="store it dense, or compute with what it stores",
            )


def _check(name: str, values: Weight, indices: Weight, shape: tuple[int, ...]) -> None:
    """Raise InvalidGraph unless the parts make a sparse tensor that can be made dense."""
    if indices.dtype != ir.DataType.INT64 or len(values.shape) != 1 or min(shape, default=0) < 0:
        raise InvalidGraph(f"sparse tensor {name!r} needs flat values, int64 indices and a shape")
    if is_packed(values.dtype) or len(shape) > MAX_RANK:
        raise InvalidGraph(
            f"sparse tensor {name!r}, {values.dtype}{list(shape)}, has no dense form: elements "
            f"must be a byte or wider, and dimensions at most {MAX_RANK}"
        )
    if indices.shape[:1] != values.shape:
        raise InvalidGraph(
            f"sparse tensor {name!r} has {values.shape[0]} values, but indices of shape "
            f"{indices.shape}"
        )
    memory = _memory()
    if (nbytes := byte_size(values.dtype, shape)) > memory:
        raise InvalidGraph(
            f"sparse tensor {name!r} takes {nbytes} bytes when dense; this machine has {memory}"
        )


def _memory() -> float:
    """Return the bytes of memory of this machine, as far as it tells."""
    if not hasattr(os, "sysconf"):  # Windows
        return math.inf
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _flat(indices: NDArray, shape: tuple[int, ...], name: str) -> NDArray:
    """Return positions in the flat tensor: indices are those, or one row of coordinates each."""
    bounds = shape
    if indices.ndim == 1:
        indices, bounds = indices[:, np.newaxis], (math.prod(shape),)
    matrix = indices.ndim == 2 and indices.shape[1] == len(bounds)
    if not matrix or not ((indices >= 0) & (indices < np.array(bounds, np.int64))).all():
        raise InvalidGraph(f"sparse tensor {name!r} has indices outside of its shape {shape}")
    strides = [math.prod(bounds[axis + 1 :]) for axis in range(len(bounds))]
    flat: NDArray = indices @ np.array(strides, np.int64)
    return flat
