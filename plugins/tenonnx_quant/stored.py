"""Quantized weights as tensors that are computed when they are written, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx_quant.rounding import Blocks, Integers, NDArray, packed


def deferred(
    name: str, dtype: ir.DataType, shape: tuple[int, ...], compute: Callable[[], NDArray]
) -> ir.Value:
    """Return an initializer whose elements are computed whenever they are asked for.

    Args:
        name: The value's.
        dtype: The element type.
        shape: The shape.
        compute: Returns the elements; of 4 bits one to a byte.
    """

    def tensor() -> ir.TensorProtocol:
        array = compute()
        if dtype.bitwidth < 8:
            flat = packed(array.reshape(-1), dtype.bitwidth)
            return ir.PackedTensor(flat, dtype, shape=ir.Shape(shape), name=name)
        return ir.Tensor(array.reshape(shape), dtype=dtype, name=name)

    lazy = ir.LazyTensor(tensor, dtype, ir.Shape(shape), cache=False, name=name)
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=lazy)


def constant(name: str, array: Any) -> ir.Value:
    """Return an initializer of an array."""
    tensor = ir.tensor(np.asarray(array), name=name)
    return ir.Value(
        name=name,
        shape=ir.Shape(tensor.shape.numpy()),
        type=ir.TensorType(tensor.dtype),
        const_value=tensor,
    )


def dequantized(value: ir.Value, parts: Sequence[ir.Value], **attributes: int) -> ir.Node:
    """Return a DequantizeLinear whose result stands for a value, and is typed as it.

    Args:
        value: The float value.
        parts: Its integers, scales and, unless they are 0, zero points.
        attributes: The node's.
    """
    node = ir.node("DequantizeLinear", parts, attributes, name=f"{value.name}.dq")
    result = node.outputs[0]
    result.name, result.shape, result.type = f"{value.name}.dequantized", value.shape, value.type
    return node


def forget_unread(graph: ir.Graph, weight: ir.Value) -> None:
    """Remove an initializer that nothing reads any more."""
    if weight.name and not weight.uses() and not weight.is_graph_output():
        graph.initializers.pop(weight.name, None)


class StoredWeight:
    """A weight's integers, scales and zero points, as initializers of a graph.

    Args:
        graph: Takes the initializers.
        weight: The float weight, an initializer.
        blocks: How scales divide it; their shape may be another view of the weight.
        kind: What its numbers become.
        scales: The shape to store scales in; with the axis of the groups if ``None``.
        turned: Store the transpose of the integers.
    """

    def __init__(
        self,
        graph: ir.Graph,
        weight: ir.Value,
        blocks: Blocks,
        kind: Integers,
        *,
        scales: tuple[int, ...] | None = None,
        turned: bool = False,
    ) -> None:
        tensor = weight.const_value
        assert tensor is not None
        self.blocks, self.kind, self._tensor, self._turned = blocks, kind, tensor, turned
        self._shape = tuple(tensor.shape.numpy())
        shape = self._shape[::-1] if turned else self._shape
        parts = blocks.scales_shape if scales is None else scales
        name = weight.name
        self.integers = deferred(f"{name}.quantized", kind.dtype, shape, self.elements)
        self.scale = deferred(f"{name}.scale", tensor.dtype, parts, lambda: self.scales()[0])
        self.zero_point: ir.Value | None = None
        if not kind.symmetric or kind.middle:
            zeros = deferred(f"{name}.zero_point", kind.dtype, parts, self._zero_points)
            self.zero_point = zeros
        for value in self.parts:
            graph.register_initializer(value)

    @property
    def parts(self) -> list[ir.Value]:
        """Integers, scales and, unless they are 0, zero points: DequantizeLinear's inputs."""
        return [v for v in (self.integers, self.scale, self.zero_point) if v is not None]

    def elements(self) -> NDArray:
        """Return the integers, one to a byte."""
        values = self.blocks.integers(self._floats(), self.kind).reshape(self._shape)
        return np.ascontiguousarray(values.T) if self._turned else values

    def scales(self) -> tuple[NDArray, NDArray]:
        """Return scales and zero points, with the axis of the groups."""
        return self.blocks.scales(self._floats(), self.kind)

    def _floats(self) -> NDArray:
        return self._tensor.numpy().reshape(self.blocks.shape)

    def _zero_points(self) -> NDArray:
        return self.scales()[1].astype(np.int8 if self.kind.signed else np.uint8)


def by_channel(
    graph: ir.Graph, weight: ir.Value, axis: int | None, *, turned: bool = False
) -> StoredWeight:
    """Return a weight in symmetric int8, with a scale for each index of an axis.

    Args:
        graph: As for ``StoredWeight``.
        weight: As for ``StoredWeight``.
        axis: 0; 1 of a matrix; ``None`` for one scale for all.
        turned: As for ``StoredWeight``.
    """
    tensor = weight.const_value
    assert tensor is not None
    shape = tuple(tensor.shape.numpy())
    size = int(np.prod(shape))
    if axis == 1:
        blocks = Blocks(shape, 0, max(shape[0], 1))
    else:
        rows = 1 if axis is None else shape[0]
        row = size // max(rows, 1)
        blocks = Blocks((rows, row), 1, max(row, 1))
    scales = () if axis is None else (shape[axis],)
    return StoredWeight(graph, weight, blocks, Integers(8), scales=scales, turned=turned)
