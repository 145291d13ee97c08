"""Constant integers that Cast and Mul make real: read as they are stored, not cast in each run.

``(Cast(q) - z) * s`` before a product is a DequantizeLinear, for which there are products over
stored integers. A Gather takes rows of ``q``, ``s`` and ``z``, and only these are made real.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir

from tenonnx import TransformContext, Weight, WeightTensor
from tenonnx.graph import attribute, constant_of, graphs
from tenonnx.graph.dtypes import cast_type
from tenonnx.graph.sizes import operand
from tenonnx_quant.fuse import is_row

# The smallest and the largest number of each type.
INTEGER_BOUNDS: Final = {ir.DataType.INT8: (-128, 127), ir.DataType.UINT8: (0, 255)}


@dataclass(frozen=True)
class Real:
    """The real numbers ``(q - z) * s`` of constant integers.

    Attributes:
        q: The integers.
        s: The scales: of no axis, or of one.
        z: The zero points in the same shape, in the integers' type; ``None`` if all are 0.
        axis: The integers' axis that the scales belong to; -1 if there is one scale.
    """

    q: Weight
    s: Weight
    z: Weight | None
    axis: int


def dequantize_casts(model: ir.Model, context: TransformContext) -> bool:
    """Make a DequantizeLinear of Cast and Mul, and gather integers before they are made real."""
    dequantized = gathered = 0
    for graph in graphs(model):
        for node in tuple(graph):
            if node.op_type == "Gather" and not node.domain:
                gathered += _gather_first(graph, node)
        for node in tuple(graph):
            if node.op_type == "Mul" and not node.domain:
                dequantized += _dequantize(graph, node)
    if dequantized:
        context.notes.append(f"dequantizes constants instead of casting them: {dequantized}")
    if gathered:
        context.notes.append(f"gathers integers before they are made real: {gathered}")
    return bool(dequantized or gathered)


def _dequantize(graph: ir.Graph | ir.Function, node: ir.Node) -> bool:
    """Exchange a Mul for a DequantizeLinear where products read nothing else."""
    made = node.outputs[0]
    if not _is_matrix_of_products(made):
        return False
    real = _of_mul(node)
    if real is None or len(real.q.shape) != 2:
        return False
    inputs = [_constant(graph, node, "q", real.q), _constant(graph, node, "s", real.s)]
    if real.z is not None:
        inputs.append(_constant(graph, node, "z", real.z))
    attributes = {"axis": real.axis} if real.axis >= 0 else {}
    new = ir.node("DequantizeLinear", inputs, attributes, version=13)
    _exchange(graph, node, [new])
    return True


def _is_matrix_of_products(value: ir.Value) -> bool:
    """Return whether only products that ``fuse`` knows read a value, transposed or as it is."""
    uses = value.uses()
    return (
        bool(uses)
        and not value.is_graph_output()
        and all(_is_of_product(use.node, use.idx) for use in uses)
    )


def _is_of_product(node: ir.Node, position: int) -> bool:
    """Return whether an operand of a node is the matrix of a product."""
    if node.domain:
        return False
    if node.op_type == "Transpose":
        return _is_matrix_of_products(node.outputs[0])
    if node.op_type == "Gemm":
        plain = bool(not attribute(node, "transA", 0) and attribute(node, "alpha", 1) == 1)
        return plain and position == 1 and is_row(operand(node, 2))
    return node.op_type == "MatMul" and position == 1


def _gather_first(graph: ir.Graph | ir.Function, node: ir.Node) -> bool:
    """Exchange a Gather of real numbers for those of integers, scales and zero points."""
    data, indices = operand(node, 0), operand(node, 1)
    maker = None if data is None else data.producer()
    if maker is None or maker.domain or indices is None:
        return False
    # What quantizes the rows again gathers codes, which is less work.
    if any(use.node.op_type == "QuantizeLinear" for use in node.outputs[0].uses()):
        return False
    read = {"Mul": _of_mul, "DequantizeLinear": _of_dequantize}.get(maker.op_type)
    real = None if read is None else read(maker)
    axis = attribute(node, "axis", 0) % len(real.q.shape) if real is not None else 0
    # Before the gathered axis, the place of the scales depends on the rank of the indices.
    if real is None or 0 <= real.axis < axis:
        return False
    new: list[ir.Node] = []

    def add(operator: str, *inputs: ir.Value, version: int | None, **attributes: int) -> ir.Value:
        dtype = inputs[0].dtype if operator == "Gather" else real.s.dtype
        new.append(ir.node(operator, inputs, attributes, version=version))
        new[-1].outputs[0].type = None if dtype is None else ir.TensorType(dtype)
        return new[-1].outputs[0]

    def rows(role: str, weight: Weight) -> ir.Value:
        if weight is not real.q:
            weight = _spread(weight, real, axis)
        value = _constant(graph, node, role, weight)
        if weight is not real.q and real.axis != axis:
            return value
        return add("Gather", value, indices, version=node.version, axis=axis)

    kind = int(real.s.dtype)
    value = add("Cast", rows("q", real.q), version=13, to=kind)
    if real.z is not None:
        zeros = add("Cast", rows("z", real.z), version=13, to=kind)
        value = add("Sub", value, zeros, version=14)
    add("Mul", value, rows("s", real.s), version=14)
    _exchange(graph, node, new)
    return True


def _of_mul(node: ir.Node) -> Real | None:
    """Return the numbers that a Mul makes of constants: ``Cast(q) * s``, ``(Cast(q) - z) * s``."""
    first, second = operand(node, 0), operand(node, 1)
    for x, scale in ((first, second), (second, first)):
        s, zero = _weight_of(scale), None
        if (shift := _maker(x, "Sub")) is not None:
            x, zero = operand(shift, 0), operand(shift, 1)
        q = _weight_of(_before_cast(x))
        if s is None or q is None or s.dtype != ir.DataType.FLOAT or q.dtype not in INTEGER_BOUNDS:
            continue
        if (axis := _axis(q.shape, s.shape)) is None or q.strides is not None:
            continue
        z = None if zero is None else _zero_points(zero, q, s)
        if zero is None or z is not None:
            return Real(q, _flat(s, axis), None if z is None else _flat(z, axis), axis)
    return None


def _of_dequantize(node: ir.Node) -> Real | None:
    """Return the numbers of a DequantizeLinear of constants without blocks."""
    q, s = (_weight_of(operand(node, place)) for place in (0, 1))
    zero = operand(node, 2)
    z = _weight_of(zero)
    if q is None or s is None or (zero is not None and z is None) or q.dtype not in INTEGER_BOUNDS:
        return None
    if s.dtype != ir.DataType.FLOAT or attribute(node, "block_size", 0) or q.strides is not None:
        return None
    if attribute(node, "output_dtype", 0) not in (0, int(s.dtype)) or not q.shape:
        return None
    axis = attribute(node, "axis", 1)
    if math.prod(s.shape) == 1:
        return Real(q, _flat(s, -1), None if z is None else _flat(z, -1), -1)
    return Real(q, s, z, axis % len(q.shape))


def _axis(shape: tuple[int, ...], scales: tuple[int, ...]) -> int | None:
    """Return the axis of a shape along which scales differ; -1 if one is of all, else ``None``."""
    if len(scales) > len(shape):
        return None
    aligned = (1,) * (len(shape) - len(scales)) + scales
    axes = [axis for axis, size in enumerate(aligned) if size != 1]
    if not axes:
        return -1
    (axis,) = axes[:1]
    return axis if len(axes) == 1 and aligned[axis] == shape[axis] else None


def _zero_points(zero: ir.Value, q: Weight, s: Weight) -> Weight | None:
    """Return zero points in the integers' type and the scales' shape, if they are so."""
    z = _weight_of(_before_cast(zero))
    if z is None and (reals := _weight_of(zero)) is not None and reals.nbytes <= s.nbytes:
        low, high = INTEGER_BOUNDS[q.dtype]
        numbers = np.asarray(reals.array, np.float64)
        if np.all(numbers == np.round(numbers)) and np.all((low <= numbers) & (numbers <= high)):
            z = reals.derive(f"zeros:{q.dtype.name}:1", lambda: numbers.astype(q.dtype.numpy()))
    if z is None or z.dtype != q.dtype or math.prod(z.shape) not in (1, math.prod(s.shape)):
        return None
    if math.prod(z.shape) == 1 and len(z.shape) <= len(q.shape):
        single, shape = z.array.reshape(()), s.shape
        return z.derive(f"spread:{shape}:1", lambda: np.full(shape, single))
    return z if _axis(q.shape, z.shape) == _axis(q.shape, s.shape) else None


def _flat(weight: Weight, axis: int) -> Weight:
    """Return the scales of an axis with that axis alone; as a scalar if there is one."""
    return _reshaped(weight, () if axis < 0 else (math.prod(weight.shape),))


def _spread(weight: Weight, real: Real, axis: int) -> Weight:
    """Return scales or zero points in a shape that broadcasts with the integers.

    Args:
        weight: They; of the integers' axis, or a scalar.
        real: The integers.
        axis: The axis that is gathered: leading axes of one element remain if it is theirs.
    """
    if real.axis < 0:
        return weight
    behind = len(real.q.shape) - 1 - real.axis
    ahead = (1,) * real.axis if real.axis == axis else ()
    return _reshaped(weight, (*ahead, *weight.shape, *(1,) * behind))


def _reshaped(weight: Weight, shape: tuple[int, ...]) -> Weight:
    if weight.shape == shape:
        return weight
    return weight.derive(f"reshape:{shape}:1", lambda: weight.array.reshape(shape))


def _weight_of(value: ir.Value | None) -> Weight | None:
    tensor = constant_of(value)
    return tensor.weight if isinstance(tensor, WeightTensor) else None


def _maker(value: ir.Value | None, operator: str) -> ir.Node | None:
    """Return the node that makes a value, if it is of that operator."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == operator and not node.domain else None


def _before_cast(value: ir.Value | None) -> ir.Value | None:
    """Return the value that is cast to float32, if a value is one that was."""
    cast = _maker(value, "Cast")
    return operand(cast, 0) if cast is not None and cast_type(cast) == ir.DataType.FLOAT else None


def _constant(graph: ir.Graph | ir.Function, node: ir.Node, role: str, weight: Weight) -> ir.Value:
    """Return an initializer over a weight."""
    assert isinstance(graph, ir.Graph)
    name = f"{node.outputs[0].name}/{role}"
    while name in graph.initializers:
        name += "'"
    value = ir.Value(name=name, const_value=WeightTensor(weight, name=name))
    value.shape, value.type = ir.Shape(weight.shape), ir.TensorType(weight.dtype)
    graph.register_initializer(value)
    return value


def _exchange(graph: ir.Graph | ir.Function, node: ir.Node, new: list[ir.Node]) -> None:
    """Put nodes in a node's place, and remove those that nothing reads any more."""
    new[-1].name, made, given = node.name, new[-1].outputs[0], list(node.inputs)
    ir.convenience.replace_nodes_and_values(graph, node, [node], new, [node.outputs[0]], [made])
    while given:
        value = given.pop()
        maker = None if value is None else value.producer()
        if maker is None or maker.graph is not graph:
            continue
        if not any(output.uses() or output.is_graph_output() for output in maker.outputs):
            given += maker.inputs
            graph.remove(maker, safe=True)
