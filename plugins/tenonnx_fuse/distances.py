"""Distances between all rows of two matrices, which converters write as a loop over one of them."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import graphs, subgraphs
from tenonnx.graph.dtypes import dtype_of
from tenonnx.graph.sizes import ANY, integers_of, rank_of, sizes_of
from tenonnx_fuse.known import attribute
from tenonnx_fuse.rewrite import Rewriting

REALS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def pairwise_distances(model: ir.Model, context: TransformContext) -> bool:
    """Put a CDist in the place of each Scan that measures how far rows are from points.

    A model that is to be saved keeps its loops: onnxruntime's CDist loses the digits by which
    points that are near each other differ.
    """
    if context.options.optimized_model_filepath:
        return False
    work = Rewriting(model, context)
    for graph in graphs(model):
        for node in tuple(graph):
            if node.op_type != "Scan" or node.domain:
                continue
            made = _distances(node)
            refused = made if isinstance(made, str) else work.refusal(made, [node])
            if isinstance(made, str) or refused:
                work.miss("distances", node, refused or "")
                continue
            work.replace("distances", graph, node, [node], made, node.outputs[1])
    return work.finish()


def _distances(node: ir.Node) -> list[ir.Node] | str:
    """Return what does the same as a Scan, or says why nothing does.

    Its state is a matrix, which stays as it is; its result has a row for each point.
    """
    inputs, body = node.inputs, dict(subgraphs(node)).get("body")
    if body is None or len(inputs) != 2 or len(node.outputs) != 2:
        return "it has more than one matrix and the points"
    if len(body.inputs) != 2 or len(body.outputs) != 2:
        return "its body is another node's"
    if attribute(node, "num_scan_inputs", 0) != 1:
        return "both of its inputs are read row by row"
    ways = [each.value for name, each in node.attributes.items() if name.startswith("scan_")]
    if any(map(any, ways)):
        return "it goes along another axis than the first, or backwards"
    if not _measures(body):
        return "it does something else than to sum up squared differences"
    if node.outputs[0].uses() or node.outputs[0].is_graph_output():
        return "its state is read"
    x, points = inputs
    if dtype_of(x) not in REALS or dtype_of(x) != dtype_of(points):
        return "its inputs are not known to be of float32 or float64"
    if rank_of(x) != 2 or rank_of(points) != 2:
        return "its inputs are not known to be matrices"
    depth = sizes_of(x)[-1]
    if depth in (None, ANY) or depth != sizes_of(points)[-1]:
        return "its rows and points are not known to be equally long, and Sub broadcasts"
    metric = {"metric": "sqeuclidean"}
    found = ir.node("CDist", [x, points], metric, domain="com.microsoft", version=1)
    return [found, ir.node("Transpose", found.outputs, {"perm": [1, 0]}, version=13)]


def _measures(body: ir.Graph) -> bool:
    """Return whether a body returns its matrix and the squared distances of its rows to a point."""
    kept, result = (_source(value) for value in body.outputs)
    total = None if result is None else result.producer()
    if kept is not body.inputs[0] or total is None or total.op_type != "ReduceSumSquare":
        return False
    axes = attribute(total, "axes", None)
    if len(total.inputs) > 1:
        axes = integers_of(total.inputs[1])
    if axes is None or tuple(axes) not in ((1,), (-1,)) or attribute(total, "keepdims", 1):
        return False
    difference = None if total.inputs[0] is None else total.inputs[0].producer()
    if difference is None or difference.op_type != "Sub":
        return False
    return {*map(_source, difference.inputs)} == {*body.inputs}


def _source(value: ir.Value | None) -> ir.Value | None:
    """Return what a value is the same as."""
    while value is not None and (node := value.producer()) and node.op_type == "Identity":
        value = node.inputs[0]
    return value
