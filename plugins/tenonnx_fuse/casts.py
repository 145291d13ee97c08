"""Casts that change nothing, and chains of casts of which one will do."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import graphs
from tenonnx.graph.dtypes import cast_type, dtype_of
from tenonnx.graph.sizes import operand
from tenonnx_fuse.bypass import bypass, note_removed

# By type, the types that represent all its values: a cast to them loses nothing. A cast from one
# of them to a third type then gives what a cast from the first type gives.
LOSSLESS_CASTS: dict[ir.DataType, frozenset[ir.DataType]] = {
    ir.DataType.FLOAT16: frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE}),
    ir.DataType.BFLOAT16: frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE}),
    ir.DataType.FLOAT: frozenset({ir.DataType.DOUBLE}),
    ir.DataType.INT8: frozenset(
        {
            ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64,
            ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE,
        }
    ),
    ir.DataType.UINT8: frozenset(
        {
            ir.DataType.UINT16, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64,
            ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE,
        }
    ),
    ir.DataType.INT16: frozenset(
        {ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE}
    ),
    ir.DataType.INT32: frozenset({ir.DataType.INT64, ir.DataType.DOUBLE}),
    ir.DataType.BOOL: frozenset(
        {
            ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.INT32, ir.DataType.INT64,
            ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE,
        }
    ),
}  # fmt: skip


def drop_casts(model: ir.Model, context: TransformContext) -> bool:
    """Take out casts to the type there is, and the first of two if it loses nothing."""
    done: Counter[str] = Counter()
    for graph in graphs(model):
        for node in tuple(graph):
            if node.op_type == "Cast" and not node.domain and node.graph is graph and node.outputs:
                _visit(node, done)
    return note_removed(context, done)


def _visit(node: ir.Node, done: Counter[str]) -> None:
    x, to = operand(node, 0), cast_type(node)
    if x is None or to is None:
        return
    before = x.producer()
    if before is not None and before.op_type == "Cast" and not before.domain:
        origin = operand(before, 0)
        source = dtype_of(origin)
        middle = cast_type(before)
        # The text of a number has the digits of its type.
        held = LOSSLESS_CASTS.get(source, ()) if source and to != ir.DataType.STRING else ()
        if origin is not None and middle in held:
            node.replace_input_with(0, origin)
            done["casts from what was cast without loss"] += 1
            x = origin
    if dtype_of(x) == to and bypass(node, x):
        done["casts to the type that there is"] += 1
