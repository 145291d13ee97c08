"""com.microsoft.nchwc: convolutions over blocks of channels, as onnxruntime saves optimized models.

Its values hold a few channels of a pixel side by side, a block that fits a vector register of the
machine that saved the model. In ONNX's operators, channels are where ONNX has them, filled up to
whole blocks with zeros; so are those of filters, which lie in blocks in the file.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, TransformContext
from tenonnx.graph import graphs
from tenonnx.graph.sizes import operand
from tenonnx.graph.traits import ACTIVATIONS
from tenonnx_fuse.constants import Array, derived
from tenonnx_fuse.known import attribute, weight_of

NCHWC_DOMAIN = "com.microsoft.nchwc"
POOLS = ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")
# Nodes that are followed backwards to the convolution that says how many channels there are.
MAX_NODES_TO_CONVOLUTION = 40


def lower_blocks(model: ir.Model, context: TransformContext) -> bool:
    """Replace the operators of the domain by those of ONNX, and put filters in ONNX's order."""
    all_graphs = graphs(model)
    nodes = [node for graph in all_graphs for node in graph if node.domain == NCHWC_DOMAIN]
    block = block_of(nodes)
    for node in nodes:
        new = LOWERED[node.op_type](node, block, context) if node.op_type in LOWERED else None
        if new is not None:
            _replace(node, new)
    return bool(nodes)


def block_of(nodes: list[ir.Node]) -> int:
    """Return how many channels are in a block: what filters allow, else what this machine has."""
    shapes = [_filter_shape(node) for node in nodes if node.op_type == "Conv"]
    for group, shape in shapes:
        if shape[0] % 16 or (group == 1 and shape[1] >= 16 and shape[1] % 16):
            return 8
    return _native_block()


def _native_block() -> int:
    """Return floats of the widest vectors that onnxruntime uses on machines like this one."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return 16
    found = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    return 16 if any(name.startswith("AVX512") or name == "X86_V4" for name in found) else 8


def _filter_shape(conv: ir.Node) -> tuple[int, tuple[int, ...]]:
    weight = weight_of(operand(conv, 1))
    return int(attribute(conv, "group", 1)), (0,) * 4 if weight is None else weight.shape


def unblocked(filters: Array, block: int, group: int) -> Array:
    """Return filters ``[M, C/group, height, width]`` in this order, of those that lie in blocks.

    They lie as ``[M/block, C/block, height, width, block of C, block of M]``; those of one channel,
    or of fewer than a block, as ``[M/block, C, height, width, block of M]``.
    """
    outer, inner, height, width = filters.shape
    single = inner == 1 if group > 1 else inner < block
    each = 1 if single else block
    blocks = filters.reshape(outer // block, inner // each, height, width, each, block)
    return blocks.transpose(0, 5, 1, 4, 2, 3).reshape(filters.shape)


def _conv(node: ir.Node, block: int, context: TransformContext) -> list[ir.Node] | None:
    weight, x = weight_of(operand(node, 1)), operand(node, 0)
    if weight is None or x is None:
        return None
    group = int(attribute(node, "group", 1))
    filters = derived(
        node.graph,
        f"{node.inputs[1].name if node.inputs[1] else ''}/unblocked",
        f"nchwc-1:{block}:{group}:{weight.key}",
        lambda: unblocked(weight.on(HOST), block, group),
        [weight],
        context,
    )
    added = ("activation", "activation_params")
    attributes = [each for name, each in node.attributes.items() if name not in added]
    bias, summand = operand(node, 2), operand(node, 3)
    inputs = [x, filters, *([] if bias is None else [bias])]
    new = [ir.Node("", "Conv", inputs, attributes, num_outputs=1)]
    if summand is not None:
        new.append(ir.node("Add", [new[-1].outputs[0], summand]))
    if kind := attribute(node, "activation", ""):
        parameters = list(attribute(node, "activation_params", ()))
        new += _activation(kind, new[-1].outputs[0], parameters)
    return new


def _activation(kind: str, x: ir.Value, parameters: list[float]) -> list[ir.Node]:
    if kind != "Clip":
        named = zip(ACTIVATIONS.get(kind, ()), parameters, strict=False)
        return [ir.node(kind, [x], dict(named))]
    bounds = [ir.node("Constant", [], {"value": ir.tensor(np.float32(p))}) for p in parameters]
    return [*bounds, ir.node("Clip", [x, *(bound.outputs[0] for bound in bounds)])]


def _pool(node: ir.Node, *_: Any) -> list[ir.Node]:
    attributes = node.attributes.values()
    return [ir.Node("", node.op_type, node.inputs, attributes, num_outputs=1)]


def _upsample(node: ir.Node, *_: Any) -> list[ir.Node]:
    scales = np.array(attribute(node, "scales", (1, 1, 1, 1)), np.float32)
    mode = attribute(node, "mode", "nearest")
    places = attribute(node, "coordinate_transformation_mode", "asymmetric")
    told = {"mode": mode, "coordinate_transformation_mode": places, "nearest_mode": "floor"}
    constant = ir.node("Constant", [], {"value": ir.tensor(scales)})
    return [constant, ir.node("Resize", [node.inputs[0], None, constant.outputs[0]], told)]


def _reorder_input(node: ir.Node, *_: Any) -> list[ir.Node]:
    """Fill channels up with zeros to as many as the convolutions want that read them."""
    x, new = node.inputs[0], []
    assert x is not None
    if attribute(node, "channels_last", 0):
        new.append(ir.node("Transpose", [x], {"perm": [0, 3, 1, 2]}))
        x = new[-1].outputs[0]
    readers = [use.node for use in node.outputs[0].uses() if use.node.op_type == "Conv"]
    wanted = {group * shape[1] for group, shape in map(_filter_shape, readers)} - {0}
    given = node.inputs[0].shape if node.inputs[0] is not None else None
    channels = None if given is None else given[-1 if new else 1]
    if not wanted or channels == max(wanted):
        return new or [ir.node("Identity", [x])]
    parts = [_integers(max(wanted)), _integers(1), _integers(0, 0, 0, 0, 0), _integers(0, 0)]
    full, axis, before, after = (part.outputs[0] for part in parts)
    shape = ir.node("Shape", [x])
    count = ir.node("Gather", [shape.outputs[0], axis])
    missing = ir.node("Sub", [full, count.outputs[0]])
    pads = ir.node("Concat", [before, missing.outputs[0], after], {"axis": 0})
    pad = ir.node("Pad", [x, pads.outputs[0]])
    return [*new, *parts, shape, count, missing, pads, pad]


def _reorder_output(node: ir.Node, *_: Any) -> list[ir.Node]:
    """Remove the channels that were added to fill blocks."""
    x, new = node.inputs[0], []
    assert x is not None
    channels = int(attribute(node, "channels", 0))
    if _channels(x) != channels:
        parts = [_integers(0), _integers(channels), _integers(1)]
        cut = ir.node("Slice", [x, *(part.outputs[0] for part in parts)])
        new = [*parts, cut]
        x = cut.outputs[0]
    if attribute(node, "channels_last", 0):
        new.append(ir.node("Transpose", [x], {"perm": [0, 2, 3, 1]}))
    return new or [ir.node("Identity", [x])]


def _integers(*numbers: int) -> ir.Node:
    return ir.node("Constant", [], {"value": ir.tensor(np.array(numbers, np.int64))})


def _channels(value: ir.Value) -> int | None:
    """Return how many channels the convolution gives that a value follows from one by one."""
    for _ in range(MAX_NODES_TO_CONVOLUTION):
        node = value.producer()
        if node is None or not node.inputs or node.op_type == "Concat":
            return None
        if node.op_type == "Conv":
            return _filter_shape(node)[1][0]
        first = operand(node, 0)
        if first is None:
            return None
        value = first
    return None


LOWERED: dict[str, Callable[[ir.Node, int, TransformContext], list[ir.Node] | None]] = {
    "Conv": _conv,
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
    "Upsample": _upsample,
    **dict.fromkeys(POOLS, _pool),
}


def _replace(node: ir.Node, new: list[ir.Node]) -> None:
    assert node.graph is not None
    new[-1].name = node.name
    values = node.outputs[:1], new[-1].outputs[:1]
    ir.convenience.replace_nodes_and_values(node.graph, node, [node], new, *values)
