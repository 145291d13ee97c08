"""Weights as integers of 4 or 8 bits, behind DequantizeLinear; activations stay floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import onnx_ir as ir

from tenonnx import InvalidArgument
from tenonnx_quant.nbits import NBITS_DOMAIN, replace_by_nbits
from tenonnx_quant.opset import at_least
from tenonnx_quant.rounding import Blocks, Integers
from tenonnx_quant.selection import Selection, depth_axis, product_uses, weights
from tenonnx_quant.stored import StoredWeight, dequantized

PRODUCTS = ("MatMul", "Gemm")
TABLES = ("Gather",)

Form = Literal["qdq", "matmulnbits"]

MATRIX_PRODUCTS: Final = Selection(PRODUCTS)


@dataclass(frozen=True)
class WeightScheme:
    """The scheme that quantizes weights.

    Attributes:
        bits: 4 or 8.
        block_size: Numbers, along the axis that a product sums over, that share a scale; 0 for
            one scale per column.
        symmetric: Whether zero points are left out.
        form: ``qdq`` is standard ONNX; ``matmulnbits`` has com.microsoft's operators.
        selection: Which products, and tables that are gathered from, take part. A table that a
            selected product reads as well takes part in any case, so that it stays one tensor.
    """

    bits: int = 4
    block_size: int = 32
    symmetric: bool = True
    form: Form = "qdq"
    selection: Selection = MATRIX_PRODUCTS

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise InvalidArgument(f"weights become integers of 4 or 8 bits, not of {self.bits}")
        size = self.block_size
        if size < 0 or (size and (size < 16 or size & (size - 1))):
            raise InvalidArgument(
                f"a block has 16, 32, 64, ... numbers, or 0 for a whole column; not {size}"
            )
        if self.form == "matmulnbits" and not size:
            raise InvalidArgument(
                "MatMulNBits divides columns into blocks", hint="give a block size, such as 32"
            )

    def blocks(self, shape: tuple[int, ...], axis: int) -> Blocks:
        """Return how scales divide a weight."""
        return Blocks(shape, axis, self.block_size or max(shape[axis], 1))

    def kind(self, bits: int) -> Integers:
        """Return what numbers become."""
        return Integers(bits, signed=self.symmetric, symmetric=self.symmetric)


def quantize_weights(model: ir.Model, scheme: WeightScheme) -> tuple[ir.Model, int]:
    """Replace the weights of selected nodes; return the model and how many they were.

    Every weight is quantized once, whoever reads it. The new tensors are computed when they are
    written.

    Raises:
        InvalidArgument: The selection names what cannot be quantized, or there is nothing.
        NotSupported: The model cannot be brought to the opset that is needed.
    """
    scheme.selection.refuse_unknown(model, (*PRODUCTS, *TABLES))
    if scheme.form == "qdq":
        model = at_least(model, 21 if scheme.bits == 4 or scheme.block_size else 13)
    replace = replace_by_nbits if scheme.form == "matmulnbits" else _replace
    count = 0
    for graph, value in weights(model):
        axis = _axis(value, scheme.selection)
        if axis is not None and replace(graph, value, axis, scheme):
            count += 1
    if not count:
        raise InvalidArgument(
            "the model has no weight to quantize: no selected product with a constant matrix",
            hint="`tenonnx inspect MODEL` lists operators and weights",
        )
    if scheme.form == "matmulnbits":
        model.opset_imports.setdefault(NBITS_DOMAIN, 1)
    return model, count


def _axis(value: ir.Value, selection: Selection) -> int | None:
    """Return the axis along which a weight is quantized; ``None`` if it stays as it is."""
    products = product_uses(value, selection)
    if products:
        return products[0][1]
    assert value.const_value is not None
    rank = len(value.const_value.shape)
    for node, index in value.uses():
        if node.op_type in TABLES and selection.takes(node):
            return depth_axis(node, index, rank)
    return None


def _replace(graph: ir.Graph, value: ir.Value, axis: int, scheme: WeightScheme) -> bool:
    tensor = value.const_value
    assert tensor is not None
    gathers = [
        node for node, index in value.uses() if depth_axis(node, index, 2) == 1 == axis
        and node.op_type == "Gather" and len(tensor.shape) == 2
    ]  # fmt: skip
    # Gather knows no 4 bits.
    bits = 8 if gathers else scheme.bits
    blocks = scheme.blocks(tuple(tensor.shape.numpy()), axis)
    whole = not scheme.block_size
    keep_axis = not whole or len(blocks.shape) > 2 or bool(gathers)
    scales = None if keep_axis else (blocks.shape[1 - axis],)
    stored = StoredWeight(graph, value, blocks, scheme.kind(bits), scales=scales)
    attributes = {"axis": axis, "block_size": blocks.size} if keep_axis else {"axis": 1 - axis}
    for node in gathers:
        _gather_integers(node, stored)
    if value.uses():
        dequantize = dequantized(value, stored.parts, **attributes)
        graph.insert_before(graph[0], dequantize)
        ir.convenience.replace_all_uses_with(value, dequantize.outputs[0])
    assert value.name is not None
    del graph.initializers[value.name]
    return True


def _gather_integers(node: ir.Node, stored: StoredWeight) -> None:
    """Gather a table's integers and scales, and dequantize what was gathered."""
    graph, rows = node.graph, node.inputs[1]
    assert isinstance(graph, ir.Graph)
    parts = [ir.node("Gather", [part, rows], {"axis": 0}) for part in stored.parts]
    attributes = {"axis": -1, "block_size": stored.blocks.size}
    gathered = [part.outputs[0] for part in parts]
    dequantize = ir.node("DequantizeLinear", gathered, attributes, name=node.name)
    old, new = node.outputs[0], dequantize.outputs[0]
    for part, value in zip(parts, stored.parts, strict=True):
        part.name = part.outputs[0].name = f"{old.name}.{value.name}"
    ir.convenience.replace_nodes_and_values(graph, node, [node], [*parts, dequantize], [old], [new])
