"""Nodes written in the place of one: operators of other domains as ONNX's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import graphs
from tenonnx.graph.shape_checks import inherit
from tenonnx_fuse.constants import Array
from tenonnx_fuse.rewrite import Rewriting

OPSET_VERSION = 13


class Made(NamedTuple):
    """Nodes in the place of one, in order, and what they make of its outputs.

    An output that nobody reads may be ``None``.
    """

    nodes: list[ir.Node]
    outputs: Sequence[ir.Value | None]


# The errors of writers on nodes without a schema of ONNX that would reject them first.
#
# They write nodes of their own and change nothing, so such a node stays, for its kernel to name.
MISFITS = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError)


class Refusal(Exception):
    """The reason why a node is left as it is."""


NUMPY_FLOATS: dict[ir.DataType | None, np.dtype[Any]] = {
    ir.DataType.FLOAT: np.dtype(np.float32),
    ir.DataType.FLOAT16: np.dtype(np.float16),
}

# The writers of operators, by domain and name. Each returns nodes, or says or raises why not.
Writers: TypeAlias = Mapping[tuple[str, str], Callable[[ir.Node], Made | str]]


def is_read(node: ir.Node, output: int) -> bool:
    """Return whether somebody reads an output."""
    if output >= len(node.outputs):
        return False
    value = node.outputs[output]
    return bool(value.uses()) or value.is_graph_output()


def writing_out(writers: Writers) -> Callable[[ir.Model, TransformContext], bool]:
    """Return the transform that puts what writers write in the place of nodes."""

    def apply(model: ir.Model, context: TransformContext) -> bool:
        work = Rewriting(model, context)
        for graph in graphs(model):
            for node in tuple(graph):
                write = writers.get((node.domain, node.op_type))
                if write is None or not node.outputs:
                    continue
                try:
                    made = write(node)
                except Refusal as refusal:
                    made = str(refusal)
                except MISFITS:
                    made = "it has not the inputs or attributes of its operator"
                refused = made if isinstance(made, str) else work.refusal(made.nodes, [node])
                if isinstance(made, str) or refused:
                    work.miss("operators of ONNX", node, refused or "")
                    continue
                _replace(graph, node, made)
                work.made[node.op_type] += 1
        if work.made:
            model.opset_imports.setdefault("", OPSET_VERSION)
        return work.finish()

    return apply


def _replace(graph: ir.Graph | ir.Function, node: ir.Node, made: Made) -> None:
    pairs = zip(node.outputs, made.outputs, strict=False)
    given = [(old, new) for old, new in pairs if new is not None]
    made.nodes[-1].name = node.name
    inherit(node, made.nodes)
    olds, news = zip(*given, strict=True)
    ir.convenience.replace_nodes_and_values(graph, node, [node], made.nodes, olds, news)


class Writer:
    """The writer of nodes, one after the other."""

    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []

    def add(
        self,
        operator: str,
        *inputs: ir.Value | Array | None,
        version: int = OPSET_VERSION,
        domain: str = "",
        **attributes: Any,
    ) -> ir.Value:
        """Add a node; an array among its inputs is a constant. Returns its first output."""
        return self.several(1, operator, *inputs, version=version, domain=domain, **attributes)[0]

    def several(
        self,
        count: int,
        operator: str,
        *inputs: ir.Value | Array | None,
        version: int = OPSET_VERSION,
        domain: str = "",
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """Add a node of so many outputs, and return them."""
        values = [self._constant(x) if isinstance(x, np.ndarray) else x for x in inputs]
        node = ir.node(
            operator, values, attributes, domain=domain, num_outputs=count, version=version
        )
        self.nodes.append(node)
        return node.outputs

    def _constant(self, array: Array) -> ir.Value:
        if array.dtype == object:
            words = [word.encode() for word in array]
            tensor: Any = ir.StringTensor(words, shape=ir.Shape(array.shape))
        else:
            tensor = ir.tensor(array)
        made = self.add("Constant", value=tensor)
        made.type, made.shape = ir.TensorType(tensor.dtype), ir.Shape(array.shape)
        return made
