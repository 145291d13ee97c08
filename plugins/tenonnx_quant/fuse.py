"""DequantizeLinear of a constant, then MatMul or Gemm: one product over the stored weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tenonnx import TransformContext, Weight, WeightTensor
from tenonnx.graph import attribute, constant_of, graphs
from tenonnx.graph.sizes import operand
from tenonnx_quant.kernels import FUSED_DOMAIN

# Bits and signedness of the element types that the fused operator reads.
BITS_AND_SIGN = {
    ir.DataType.INT8: (8, 1),
    ir.DataType.UINT8: (8, 0),
    ir.DataType.INT4: (4, 1),
    ir.DataType.UINT4: (4, 0),
    ir.DataType.INT2: (2, 1),
    ir.DataType.UINT2: (2, 0),
}

# The numbers of inputs that a node may have; the runtime refuses others by name.
INPUT_COUNTS = {"MatMul": (2,), "Gemm": (2, 3)}

# The accuracy level that lets activations be rounded to 8 bits.
INT8_ACCURACY_LEVEL = 4

# Weights of 2 bits that share a scale, at least, for which onnxruntime rounds.
LEAST_BLOCK_OF_2_BITS = 32

# The greatest scale by which a product may be multiplied, instead of each of its terms.
MAX_SCALE = 1e10


@dataclass(frozen=True)
class Quantized:
    """A constant matrix behind a DequantizeLinear, as its weights are stored."""

    weight: Weight
    scales: ir.Value
    zero_points: Weight | None
    axis: int
    block_size: int


def fuse_dequantize_matmul(model: ir.Model, context: TransformContext) -> bool:
    """Fuse every MatMul and Gemm whose second operand is a dequantized constant matrix.

    Also through a Transpose in between. A bias of Gemm, or anything else added to the product,
    stays a node of its own. The DequantizeLinear goes once nobody reads it. A model that is to be
    saved keeps the standard's operators, which others read too.
    """
    if context.options.optimized_model_filepath:
        return False
    modified = False
    for graph in graphs(model):
        for node in tuple(graph):
            found = _match(node)
            if found is not None and _supported(node, context):
                accuracy = _accuracy(found[0], context, transposed=found[1])
                _replace(graph, node, *found, accuracy=accuracy)
                modified = True
    return modified


def _match(node: ir.Node) -> tuple[Quantized, bool] | None:
    """Return the matrix and whether the node multiplies by its transpose."""
    if node.domain != "" or len(node.inputs) not in INPUT_COUNTS.get(node.op_type, ()):
        return None
    if len(node.outputs) != 1 or node.inputs[0] is None:
        return None
    matrix, transposed = node.inputs[1], False
    if node.op_type == "Gemm":
        if attribute(node, "transA", 0) or attribute(node, "alpha", 1) != 1:
            return None
        if not is_row(operand(node, 2)):
            return None
        transposed = bool(attribute(node, "transB", 0))
    producer = matrix.producer() if matrix is not None else None
    if producer is not None and producer.op_type == "Transpose" and producer.domain == "":
        permutation = producer.attributes.get("perm")
        if permutation is not None and tuple(permutation.as_ints()) != (1, 0):
            return None
        matrix, transposed = operand(producer, 0), not transposed
        producer = matrix.producer() if matrix is not None else None
    if producer is None or producer.op_type != "DequantizeLinear" or producer.domain != "":
        return None
    quantized = _quantized(producer)
    return None if quantized is None else (quantized, transposed)


def is_row(bias: ir.Value | None) -> bool:
    """Return whether what Gemm adds is one row at most: Add would broadcast to several."""
    producer = None if bias is None else bias.producer()
    if producer is not None and producer.op_type == "DequantizeLinear":
        bias = producer.inputs[0]  # of the same shape, and often a weight
    shape = None if bias is None else bias.shape
    return bias is None or (shape is not None and (len(shape) < 2 or shape[0] == 1))


def _quantized(node: ir.Node) -> Quantized | None:
    inputs = [*node.inputs, None, None, None][:3]
    weight, scales = (_weight_of(value) for value in inputs[:2])
    zero_points = _weight_of(inputs[2])
    if (
        weight is None
        or scales is None
        or weight.dtype not in BITS_AND_SIGN
        or len(weight.shape) != 2
    ):
        return None
    if inputs[2] is not None and zero_points is None:
        return None
    if weight.strides is not None or scales.dtype not in (
        ir.DataType.FLOAT,
        ir.DataType.FLOAT16,
        ir.DataType.BFLOAT16,
    ):
        return None
    axis = attribute(node, "axis", 1)
    axis += 2 if axis < 0 else 0
    if axis not in (0, 1):
        return None
    block = attribute(node, "block_size", 0)
    assert inputs[1] is not None
    if not block and not (np.abs(scales.array, dtype=np.float32) <= MAX_SCALE).all():
        return None
    per_tensor = len(scales.shape) == 0 or (scales.shape == (1,) and weight.shape[axis] != 1)
    return Quantized(weight, inputs[1], zero_points, -1 if per_tensor else axis, block)


def _weight_of(value: ir.Value | None) -> Weight | None:
    tensor = constant_of(value)
    return tensor.weight if isinstance(tensor, WeightTensor) else None


def _supported(node: ir.Node, context: TransformContext) -> bool:
    # As many inputs as the operator needs, and of its own: a node reads what it is given.
    x, y = node.inputs[:2]
    alike = [ir.Value(type=None if each is None else each.type) for each in (x, y, y)]
    made = ir.Node(FUSED_DOMAIN, "DequantizeMatMul", alike, version=1, attributes=())
    return context.supports(made, node)


def _accuracy(quantized: Quantized, context: TransformContext, *, transposed: bool) -> int:
    """Return the level that onnxruntime, too, has for blocks unless it is told otherwise.

    Without an option, it rounds for blocks along the first axis alone, of 2 bits for 32 and more.
    """
    asked = context.option("session.qdq_matmulnbits_accuracy_level")
    if not quantized.block_size or asked not in (None, str(INT8_ACCURACY_LEVEL)):
        return 0
    bits, _ = BITS_AND_SIGN[quantized.weight.dtype]
    rounds = not transposed and (bits > 2 or quantized.block_size >= LEAST_BLOCK_OF_2_BITS)
    return INT8_ACCURACY_LEVEL if rounds or asked is not None else 0


def _replace(
    graph: ir.Graph, node: ir.Node, quantized: Quantized, transposed: bool, accuracy: int
) -> None:
    bits, signed = BITS_AND_SIGN[quantized.weight.dtype]
    rows, columns = quantized.weight.shape
    inputs = [node.inputs[0], _bytes_of(graph, node, "weight", quantized.weight), quantized.scales]
    if quantized.zero_points is not None:
        inputs.append(_bytes_of(graph, node, "zero_points", quantized.zero_points))
    output = node.outputs[0]
    product = ir.node(
        "DequantizeMatMul",
        inputs,
        {
            "bits": bits,
            "signed": signed,
            "rows": rows,
            "columns": columns,
            "axis": quantized.axis,
            "block_size": quantized.block_size,
            "transposed": int(transposed),
            "accuracy_level": accuracy,
        },
        domain=FUSED_DOMAIN,
        version=1,
        name=node.name,
    )
    new_nodes, result = [product], product.outputs[0]
    bias = operand(node, 2)
    if bias is not None:
        new_nodes += _biased(node, result, bias)
        result = new_nodes[-1].outputs[0]
    ir.convenience.replace_nodes_and_values(graph, node, [node], new_nodes, [output], [result])


def _biased(node: ir.Node, product: ir.Value, bias: ir.Value) -> list[ir.Node]:
    """Return the nodes that add Gemm's bias, times beta if that is not 1."""
    beta = attribute(node, "beta", 1)
    if beta == 1:
        return [ir.node("Add", [product, bias], version=14)]
    factor = ir.node("Constant", [], {"value_float": beta}, version=13)
    scaled = ir.node("Mul", [bias, factor.outputs[0]], version=14)
    return [factor, scaled, ir.node("Add", [product, scaled.outputs[0]], version=14)]


def _bytes_of(graph: ir.Graph, node: ir.Node, role: str, weight: Weight) -> ir.Value:
    """Return an initializer over the weight's bytes as they are stored."""
    name = f"{node.outputs[0].name}/{role}"
    value = ir.Value(name=name, const_value=WeightTensor(weight.packed(), name=name))
    value.shape, value.type = ir.Shape([weight.nbytes]), ir.TensorType(ir.DataType.UINT8)
    graph.register_initializer(value)
    return value
