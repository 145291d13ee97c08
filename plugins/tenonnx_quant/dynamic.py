"""Products of integers whose activations are quantized in every run, by the range they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import onnx_ir as ir

from tenonnx import InvalidArgument
from tenonnx.graph import attribute
from tenonnx.graph.sizes import operand
from tenonnx_quant.opset import at_least
from tenonnx_quant.selection import Selection, is_scaled, weights
from tenonnx_quant.stored import StoredWeight, by_channel, constant

DYNAMIC_PRODUCTS = ("MatMul", "Gemm", "Conv")

Form = Literal["integer", "qdq"]

MATRIX_PRODUCTS: Final = Selection(("MatMul", "Gemm"))


@dataclass(frozen=True)
class DynamicScheme:
    """The scheme that quantizes products.

    Attributes:
        per_channel: Whether every column, or channel, of a weight has a scale of its own.
        form: ``integer`` multiplies integers, with MatMulInteger and ConvInteger; ``qdq`` puts
            QuantizeLinear's pattern around the float operator.
        selection: Which products take part.
    """

    per_channel: bool = True
    form: Form = "integer"
    selection: Selection = MATRIX_PRODUCTS


def quantize_dynamic(model: ir.Model, scheme: DynamicScheme) -> tuple[ir.Model, int]:
    """Replace selected products with constant float32 weights; return the model and how many.

    A weight that something else reads as well, such as a table that rows are gathered from,
    stays as it is, so that it stays one tensor.

    Raises:
        InvalidArgument: The selection names what cannot be quantized, or there is nothing.
        NotSupported: The model cannot be brought to the opset that is needed.
    """
    scheme.selection.refuse_unknown(model, DYNAMIC_PRODUCTS)
    model = at_least(model, 13)
    rewriter = Rewriter(scheme)
    for graph, value in weights(model):
        tensor = value.const_value
        readers = [node for node, index in value.uses() if index == 1 and _fits(node, value)]
        if tensor is None or tensor.dtype != ir.DataType.FLOAT or value.is_graph_output():
            continue
        # Its readers share one quantized weight, so all have to read it the same way around.
        same = {(node.op_type, attribute(node, "transB", 0)) for node in readers}
        alone = len(readers) == len(value.uses()) and len(same) == 1
        if alone and all(scheme.selection.takes(node) for node in readers):
            rewriter.replace(graph, value, readers)
    if not rewriter.count:
        raise InvalidArgument(
            "the model has no product to quantize: none selected has a float32 matrix of its own",
            hint="`tenonnx inspect MODEL` lists operators and weights",
        )
    return model, rewriter.count


def _fits(node: ir.Node, weight: ir.Value) -> bool:
    if node.domain != "" or node.op_type not in DYNAMIC_PRODUCTS or node.inputs[0] is weight:
        return False
    if node.op_type == "Gemm":
        return not is_scaled(node) and not attribute(node, "transA", 0)
    assert weight.const_value is not None
    return node.op_type == "Conv" or len(weight.const_value.shape) == 2


class Rewriter:
    """Exchanges products one weight at a time; an activation is quantized once for all of them.

    Args:
        scheme: How.

    Attributes:
        count: Nodes exchanged.
    """

    def __init__(self, scheme: DynamicScheme) -> None:
        self.scheme, self.count = scheme, 0
        self._quantized: dict[tuple[ir.Graph, ir.Value], ir.Node] = {}

    def replace(self, graph: ir.Graph, value: ir.Value, readers: list[ir.Node]) -> None:
        """Exchange all nodes that read a weight, which is quantized with one set of scales."""
        stored = self._stored(graph, value, readers[0])
        for node in readers:
            assert isinstance(node.graph, ir.Graph)
            source = node.inputs[0]
            assert source is not None
            quantized = self._activation(node.graph, source)
            form = self._qdq if self.scheme.form == "qdq" else self._integer
            made = form(node, quantized, stored)
            made += _biased(node, made[-1].outputs[0])
            old, new = node.outputs[0], made[-1].outputs[0]
            for index, part in enumerate(made):
                part.name = part.outputs[0].name = f"{old.name}.{index}"
            ir.convenience.replace_nodes_and_values(node.graph, node, [node], made, [old], [new])
            self.count += 1
        assert value.name is not None
        del graph.initializers[value.name]

    def _stored(self, graph: ir.Graph, value: ir.Value, node: ir.Node) -> StoredWeight:
        """Return a weight in int8, ``[K, N]`` of products."""
        turned = node.op_type == "Gemm" and bool(attribute(node, "transB", 0))
        channels = 0 if turned or node.op_type == "Conv" else 1
        axis = channels if self.scheme.per_channel else None
        return by_channel(graph, value, axis, turned=turned)

    def _activation(self, graph: ir.Graph, source: ir.Value) -> ir.Node:
        """Return the node that quantizes an activation, made where it is first needed."""
        found = self._quantized.get((graph, source))
        if found is None:
            found = ir.node("DynamicQuantizeLinear", [source], num_outputs=3)
            found.name = f"{source.name}.quantized"
            for output, part in zip(found.outputs, ("", ".scale", ".zero_point"), strict=True):
                output.name = f"{source.name}.quantized{part}"
            producer = source.producer()
            if producer is not None and producer.graph is graph:
                graph.insert_after(producer, found)
            else:
                graph.insert_before(graph[0], found)
            self._quantized[graph, source] = found
        return found

    def _integer(self, node: ir.Node, quantized: ir.Node, stored: StoredWeight) -> list[ir.Node]:
        x, scale, zero = quantized.outputs
        conv = node.op_type == "Conv"
        op = "ConvInteger" if conv else "MatMulInteger"
        attributes = list(node.attributes.values()) if conv else []
        product = ir.Node("", op, [x, stored.integers, zero], attributes)
        floats = ir.node("Cast", product.outputs, {"to": int(ir.DataType.FLOAT)})
        shaped = stored.scale
        made: list[ir.Node] = [product, floats]
        if conv and self.scheme.per_channel:
            made.append(_per_channel(node, stored.scale))
            shaped = made[-1].outputs[0]
        # The two scales first: one multiplication for each element of the result instead of two.
        made.append(ir.node("Mul", [scale, shaped]))
        made.append(ir.node("Mul", [floats.outputs[0], made[-1].outputs[0]]))
        return made

    def _qdq(self, node: ir.Node, quantized: ir.Node, stored: StoredWeight) -> list[ir.Node]:
        axis = {"axis": 0 if node.op_type == "Conv" else 1} if self.scheme.per_channel else {}
        x = ir.node("DequantizeLinear", quantized.outputs)
        weight = ir.node("DequantizeLinear", stored.parts, axis)
        inputs = [x.outputs[0], weight.outputs[0]]
        op = "Conv" if node.op_type == "Conv" else "MatMul"
        attributes = list(node.attributes.values()) if op == "Conv" else []
        return [x, weight, ir.Node("", op, inputs, attributes)]


def _per_channel(node: ir.Node, source: ir.Value) -> ir.Node:
    """Return what lets a convolution's scales, or bias, broadcast over its result."""
    graph, weight = node.graph, node.inputs[1]
    assert isinstance(graph, ir.Graph)
    assert weight is not None
    assert weight.const_value is not None
    around = [1] * (len(weight.const_value.shape) - 2)
    sizes = constant(f"{source.name}.{node.outputs[0].name}.sizes", [1, -1, *around])
    graph.register_initializer(sizes)
    return ir.node("Reshape", [source, sizes])


def _biased(node: ir.Node, product: ir.Value) -> list[ir.Node]:
    bias = operand(node, 2)
    if bias is None:
        return []
    if node.op_type != "Conv":
        return [ir.node("Add", [product, bias])]
    spread = _per_channel(node, bias)
    return [spread, ir.node("Add", [product, spread.outputs[0]])]
