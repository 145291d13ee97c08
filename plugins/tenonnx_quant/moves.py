"""Operators that only move numbers, between codes: they move the codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import array_of, attribute, constant_of, graphs, replace_uses
from tenonnx.graph.sizes import operand
from tenonnx.graph.traits import VIEWS

# Every element of the result is one of the first input's.
MOVING = VIEWS | {"DepthToSpace", "Expand", "Gather", "Slice", "SpaceToDepth", "Tile", "Transpose"}

# Between these, dequantized codes are neither too small for float32 nor too large.
SCALES = 1e-30, 1e30


class Code(NamedTuple):
    """The numbers that integers of 8 or 16 bits stand for: ``(integer - zero) * scale``."""

    scale: float
    zero: int
    dtype: np.dtype[np.generic]


def move_codes(model: ir.Model, context: TransformContext) -> bool:
    """Take out the DequantizeLinear before what moves numbers, and the QuantizeLinear behind it.

    Both must have the same constant scale and zero point: every code is then what it was before.
    """
    count = 0
    for graph in graphs(model):
        for node in tuple(graph):
            if node.op_type in MOVING and not node.domain and len(node.outputs) == 1:
                count += _move(graph, node)
    if count:
        context.notes.append(f"moves codes instead of numbers: {count}")
    return bool(count)


def _move(graph: ir.Graph | ir.Function, node: ir.Node) -> bool:
    x, moved = operand(node, 0), node.outputs[0]
    source = None if x is None else x.producer()
    codes = None if source is None else operand(source, 0)
    found = None if source is None else _code_of(source, "DequantizeLinear")
    readers = [use.node for use in moved.uses()]
    if found is None or codes is None or not readers or moved.is_graph_output():
        return False
    if any(_code_of(reader, "QuantizeLinear") != found for reader in readers):
        return False
    if any(each.graph is not graph or each.outputs[0].is_graph_output() for each in readers):
        return False
    node.replace_input_with(0, codes)
    moved.type = ir.TensorType(ir.DataType.from_numpy(found.dtype))
    for reader in readers:
        replace_uses(reader.outputs[0], moved)
        graph.remove(reader, safe=True)
    return True


def _code_of(node: ir.Node, operator: str) -> Code | None:
    """Return what a node's codes stand for, if it is this operator and constants say so."""
    if node.op_type != operator or node.domain or len(node.inputs) < 3:
        return None
    if attribute(node, "block_size", 0) or attribute(node, "precision", 0) not in (0, 1):
        return None
    scale, zero = (_single(operand(node, place)) for place in (1, 2))
    if scale is None or zero is None or scale.dtype != np.float32 or zero.dtype.itemsize > 2:
        return None
    fits = zero.dtype.kind in "iu" and SCALES[0] < float(scale) < SCALES[1]
    return Code(float(scale), int(zero), zero.dtype) if fits else None


def _single(value: ir.Value | None) -> np.ndarray[tuple[()], np.dtype[np.generic]] | None:
    tensor = constant_of(value)
    if tensor is None or tensor.size != 1 or len(tensor.shape) > 1:
        return None
    return array_of(tensor).reshape(())
