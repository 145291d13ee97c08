"""Quantized weights as com.microsoft's MatMulNBits and GatherBlockQuantized keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from tenonnx.graph import attribute
from tenonnx.graph.sizes import operand
from tenonnx_quant.rounding import Blocks, Integers, NDArray, packed
from tenonnx_quant.selection import depth_axis, is_scaled, product_uses
from tenonnx_quant.stored import constant, deferred

if TYPE_CHECKING:
    from tenonnx_quant.weight_only import WeightScheme

NBITS_DOMAIN = "com.microsoft"


class Columns:
    """A matrix as N columns of K unsigned integers, each in blocks that fill whole bytes.

    Args:
        graph: Takes the initializers.
        weight: The float matrix; ``[K, N]`` if ``axis`` is 0, ``[N, K]`` if it is 1.
        blocks: How scales divide it.
        symmetric: Whether zero points are left out, which means the middle of the range.
        bits: 4 or 8.
    """

    def __init__(
        self, graph: ir.Graph, weight: ir.Value, blocks: Blocks, bits: int, *, symmetric: bool
    ) -> None:
        tensor = weight.const_value
        assert tensor is not None
        self._tensor, self._blocks = tensor, blocks
        self._kind = Integers(bits, signed=False, symmetric=symmetric)
        self.depth, self.count = blocks.shape[blocks.axis], blocks.shape[1 - blocks.axis]
        self.bits, self.size = bits, blocks.size
        name, groups = weight.name, blocks.count
        shape = (self.count, groups, blocks.size * bits // 8)
        self.integers = deferred(f"{name}.quantized", ir.DataType.UINT8, shape, self._packed)
        self.scale = deferred(
            f"{name}.scale", tensor.dtype, (self.count, groups), lambda: self._parameters()[0]
        )
        self.parts = [self.integers, self.scale]
        if not symmetric:
            shape_of_zeros = (self.count, -(-groups * bits // 8))
            self.parts.append(
                deferred(f"{name}.zero_point", ir.DataType.UINT8, shape_of_zeros, self._zero_points)
            )
        for value in self.parts:
            graph.register_initializer(value)

    def _columns_first(self, array: NDArray) -> NDArray:
        return array if self._blocks.axis == 1 else array.T

    def _packed(self) -> NDArray:
        integers = self._blocks.integers(self._tensor.numpy(), self._kind)
        columns = self._columns_first(integers)
        gap = self._blocks.count * self.size - self.depth
        if gap:
            columns = np.pad(columns, ((0, 0), (0, gap)), constant_values=self._kind.middle)
        return packed(columns, self.bits)

    def _parameters(self) -> list[NDArray]:
        found = self._blocks.scales(self._tensor.numpy(), self._kind)
        return [np.ascontiguousarray(self._columns_first(part)) for part in found]

    def _zero_points(self) -> NDArray:
        return packed(self._parameters()[1].astype(np.uint8), self.bits)


def replace_by_nbits(graph: ir.Graph, value: ir.Value, axis: int, scheme: WeightScheme) -> bool:
    """Replace the products with a matrix, and what gathers its rows; tell whether it could.

    Anything else that reads the matrix goes on to read the float one.
    """
    tensor = value.const_value
    assert tensor is not None
    if len(tensor.shape) != 2:
        return False
    products = [
        node
        for node, along in product_uses(value, scheme.selection)
        if along == axis and _is_plain(node)
    ]
    gathers = [node for node, index in value.uses() if depth_axis(node, index, 2) == axis == 1
               and node.op_type == "Gather"]  # fmt: skip
    if not products and not gathers:
        return False
    blocks = scheme.blocks(tuple(tensor.shape.numpy()), axis)
    if blocks.shape[1] % blocks.size:
        gathers = []  # rows of whole blocks are all that GatherBlockQuantized takes
    columns = Columns(graph, value, blocks, scheme.bits, symmetric=scheme.symmetric)
    for node in products:
        _multiply(node, columns)
    for node in gathers:
        _gather(node, columns)
    _drop(graph, value)
    return True


def _is_plain(node: ir.Node) -> bool:
    if node.op_type == "MatMul":
        return True
    bias = operand(node, 2)
    flat = bias is None or (bias.shape is not None and len(bias.shape) == 1)
    return flat and not attribute(node, "transA", 0) and not is_scaled(node)


def _multiply(node: ir.Node, columns: Columns) -> None:
    bias = operand(node, 2)
    inputs = [node.inputs[0], *columns.parts]
    if bias is not None:
        inputs += [None] * (5 - len(inputs)) + [bias]
    attributes = {
        "K": columns.depth, "N": columns.count, "bits": columns.bits, "block_size": columns.size,
    }  # fmt: skip
    _exchange(node, "MatMulNBits", inputs, attributes)


def _gather(node: ir.Node, columns: Columns) -> None:
    """Gather rows of the very bytes that the products read, in another shape."""
    graph, old = node.graph, node.outputs[0]
    assert isinstance(graph, ir.Graph)
    sizes = constant(f"{old.name}.sizes", np.array([columns.count, -1]))
    graph.register_initializer(sizes)
    flat = ir.node("Reshape", [columns.integers, sizes], name=f"{old.name}.table")
    flat.outputs[0].name = flat.name
    graph.insert_before(node, flat)
    inputs = [flat.outputs[0], node.inputs[1], *columns.parts[1:]]
    attributes = {"bits": columns.bits, "block_size": columns.size, "quantize_axis": 1}
    _exchange(node, "GatherBlockQuantized", inputs, attributes | {"gather_axis": 0})


def _exchange(
    node: ir.Node, op: str, inputs: list[ir.Value | None], attributes: dict[str, int]
) -> None:
    assert isinstance(node.graph, ir.Graph)
    made = ir.node(op, inputs, attributes, domain=NBITS_DOMAIN, name=node.name)
    values = node.outputs, made.outputs
    ir.convenience.replace_nodes_and_values(node.graph, node, [node], [made], *values)


def _drop(graph: ir.Graph, value: ir.Value) -> None:
    """Remove the transposes of a matrix that nobody reads any more, and the matrix likewise."""
    for node, _ in tuple(value.uses()):
        if node.op_type == "Transpose" and not node.outputs[0].uses():
            assert isinstance(node.graph, ir.Graph)
            if not node.outputs[0].is_graph_output():
                node.graph.remove(node, safe=True)
    if not value.uses() and not value.is_graph_output() and value.name:
        del graph.initializers[value.name]
