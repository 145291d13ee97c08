"""A sum and its normalisation as one node, for providers that want it so."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import graphs
from tenonnx_fuse.known import attribute, operand, rank_of, weight_of
from tenonnx_fuse.rewrite import Rewriting, has_any

TARGETS = {
    "LayerNormalization": "SkipLayerNormalization",
    "RMSNormalization": "SkipSimplifiedLayerNormalization",
}


def skip_norms(model: ir.Model, context: TransformContext) -> bool:
    """Turns Add and the normalisation of its result into com.microsoft's operator for both.

    Others may read the sum too: it is the operator's fourth output.
    """
    if not has_any(model, tuple(TARGETS)):
        return False
    work = Rewriting(model, context)
    for graph in graphs(model):
        for node in tuple(graph):
            if node.op_type in TARGETS and not node.domain and node.graph is graph:
                _visit(node, work)
    return work.finish()


def _visit(norm: ir.Node, work: Rewriting) -> None:
    total = operand(norm, 0)
    added = None if total is None else total.producer()
    if total is None or added is None or added.op_type != "Add" or added.domain:
        return
    target = TARGETS[norm.op_type]
    if why := _unfit(norm, added):
        work.miss(target, norm, why)
        return
    attributes = {"epsilon": float(attribute(norm, "epsilon", 1e-5))}
    inputs = [*added.inputs, *norm.inputs[1:]]
    new = ir.node(
        target, inputs, attributes, num_outputs=4, domain="com.microsoft", version=1
    )  # fmt: skip
    if refused := work.refusal([new], [added, norm]):
        work.miss(target, norm, refused)
        return
    graph = norm.graph
    assert graph is not None
    olds, news = [norm.outputs[0], total], [new.outputs[0], new.outputs[3]]
    for old, made in zip(olds, news, strict=True):
        made.name, made.shape, made.type = old.name, old.shape, old.type
        old.name = None
    new.name = norm.name
    for unread in new.outputs[1:3]:
        unread.name = ""
    # Where the sum was made: others may read it before the normalisation.
    ir.convenience.replace_nodes_and_values(graph, added, [norm, added], [new], olds, news)
    work.model.opset_imports.setdefault("com.microsoft", 1)
    work.made[target] += 1


def _unfit(norm: ir.Node, added: ir.Node) -> str | None:
    if len(added.inputs) != 2 or not norm.outputs:
        return "a summand or the result is missing"
    if added.graph is not norm.graph:
        return "the sum is made in another graph"
    if any(output.uses() or output.is_graph_output() for output in norm.outputs[1:]):
        return "mean or deviation are read"
    rank = rank_of(operand(norm, 0))
    if attribute(norm, "axis", -1) not in (-1, (rank or 0) - 1):
        return "it is over several axes"
    ranks = [rank_of(value) for value in added.inputs]
    if ranks[0] is None or ranks[0] != ranks[1] or any(map(weight_of, added.inputs)):
        return "the summands are not known to be of one shape"
    if any(weight_of(value) is None for value in norm.inputs[1:]):
        return "scale or bias are no constants"
    return None
