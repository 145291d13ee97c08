"""Linear operators per channel behind a convolution, folded into its weights and bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, TransformContext, Weight
from tenonnx.graph import graphs
from tenonnx.graph.sizes import operand
from tenonnx.weights.digest import digest
from tenonnx_fuse.constants import Array, derived
from tenonnx_fuse.known import attribute, weight_of
from tenonnx_fuse.rewrite import Rewriting, has_any

if TYPE_CHECKING:
    from tenonnx.graph.affine import Affine

FLOAT_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)
SCALING = ("BatchNormalization", "Mul", "Div")
ADDING = ("Add", "Sub")


def fold_into_weights(model: ir.Model, context: TransformContext) -> bool:
    """Fold normalizations and factors per channel into the convolutions before them.

    That makes new weights, once for all sessions; those of a convolution that shares them with
    another node stay as they are.
    """
    return _fold(model, context, SCALING + ADDING)


def fold_into_bias(model: ir.Model, context: TransformContext) -> bool:
    """Fold summands per channel into the bias of the convolutions before them."""
    return _fold(model, context, ADDING)


def _fold(model: ir.Model, context: TransformContext, types: tuple[str, ...]) -> bool:
    if not has_any(model, ("Conv", "ConvTranspose")):
        return False
    work = Rewriting(model, context)
    for graph in graphs(model):
        for node in tuple(graph):
            while node.graph is graph and (new := _follow(node, work, types)) is not None:
                node = new
    return work.finish()


def _follow(node: ir.Node, work: Rewriting, types: tuple[str, ...]) -> ir.Node | None:
    """Fold what follows a convolution; return the new convolution."""
    if node.op_type not in ("Conv", "ConvTranspose") or node.domain or not node.outputs:
        return None
    uses = tuple(node.outputs[0].uses())
    after = uses[0].node if len(uses) == 1 and not node.outputs[0].is_graph_output() else None
    if after is None or after.op_type not in types or after.domain or after.graph is not node.graph:
        return None
    name = f"{node.op_type} and {after.op_type}"
    weight, bias = weight_of(operand(node, 1)), weight_of(operand(node, 2))
    if weight is None or weight.dtype not in FLOAT_TYPES or len(weight.shape) < 2:
        work.miss(name, after, "the weights are no constants of a float type")
        return None
    if operand(node, 2) is not None and bias is None:
        work.miss(name, after, "the bias is no constant")
        return None
    from tenonnx.graph.affine import affine_of, channels_of

    channels = channels_of(node, weight.shape)
    affine = affine_of(after, node.outputs[0], channels, len(weight.shape))
    if affine is None:
        return None
    kernel = operand(node, 1)
    if affine.factor is not None and kernel is not None and len(kernel.uses()) > 1:
        work.miss(name, after, "its weights are read by another node too, and would be copied")
        return None
    inputs = _folded(node, weight, bias, affine, channels, _digest(after), work.context)
    attributes = tuple(node.attributes.values())
    new = ir.Node("", node.op_type, inputs, attributes, num_outputs=1, version=node.version)
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    if refused := work.refusal([new], (after, node)):
        work.miss(name, after, refused)
        return None
    work.replace(name, graph, after, (after, node), [new])
    return new


def _digest(node: ir.Node) -> str:
    """Name what a node does, so that the same folded weights are found again."""
    keys = [weight.key for value in node.inputs if (weight := weight_of(value)) is not None]
    parts = [node.op_type, str(attribute(node, "epsilon", "")), *keys]
    return digest("\0".join(parts))


def _folded(
    node: ir.Node,
    weight: Weight,
    bias: Weight | None,
    affine: Affine,
    channels: int,
    what: str,
    context: TransformContext,
) -> list[ir.Value | None]:
    group = int(attribute(node, "group", 1))

    def weights() -> Array:
        factor = affine.factor
        assert factor is not None
        array: Array = weight.on(HOST)
        ones = (1,) * (len(weight.shape) - 2)
        if node.op_type == "Conv":
            return (array * factor.reshape(-1, 1, *ones)).astype(array.dtype)
        parts = array.reshape(group, -1, *weight.shape[1:])
        return (
            (parts * factor.reshape(group, 1, -1, *ones)).astype(array.dtype).reshape(array.shape)
        )

    def summands() -> Array:
        shift = np.zeros(channels) if affine.shift is None else affine.shift
        if bias is not None:
            old = bias.on(HOST).astype(np.float64)
            shift = shift + (old if affine.factor is None else old * affine.factor)
        return np.asarray(shift).astype(weight.on(HOST).dtype)

    kernel = operand(node, 1)
    if affine.factor is not None:
        kernel = _constant(node, "weight", f"{what}:{weight.key}:{group}", weights, context)
    if affine.shift is None and bias is None:
        return [operand(node, 0), kernel]
    key = f"{what}:{weight.dtype}:{channels}:{bias.key if bias else ''}"
    return [operand(node, 0), kernel, _constant(node, "bias", key, summands, context)]


def _constant(
    node: ir.Node, role: str, key: str, build: Callable[[], Array], context: TransformContext
) -> ir.Value:
    short = digest(key)
    return derived(
        node.graph,
        f"{node.outputs[0].name}/{role}",
        f"conv-{role}-1:{node.op_type}:{short}",
        build,
        [],
        context,
    )
