"""Normalisations as exporters wrote them before they were operators, found among nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.records import record
from tenonnx_cpu.fuse import Scope

if TYPE_CHECKING:
    import onnx_ir as ir


@record
class Match:
    """A normalisation found.

    Attributes:
        nodes: All it is made of, in an order they can run in.
        x: What is normalised, over its last axis.
        scale: What the result is multiplied by.
        bias: What is added to it.
        epsilon: What is added to the mean square.
        centred: Whether the mean is subtracted first.
        output: The result.
    """

    nodes: tuple[ir.Node, ...]
    x: ir.Value
    scale: ir.Value
    bias: ir.Value | None
    epsilon: float
    centred: bool
    output: ir.Value


def decomposed_norm(node: ir.Node, scope: Scope) -> Match | None:
    """Returns the normalisation that begins with a node, if one does.

    Layer normalisation begins with the mean, root-mean-square normalisation with the square.
    """
    trace = _Trace(scope)
    if node.op_type == "ReduceMean":
        return trace.layer_norm(node)
    return trace.rms_norm(node)


class _Trace:
    """Follows values from node to node and remembers the way."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._nodes: list[ir.Node] = []

    def layer_norm(self, mean: ir.Node) -> Match | None:
        x = mean.inputs[0]
        if x is None or not self._is_mean(mean):
            return None
        self._nodes.append(mean)
        difference = self._only(mean.outputs[0], "Sub")
        if difference is None or difference.inputs[0] is not x:
            return None
        centred = difference.outputs[0]
        square = self._one_of(centred, ("Pow", "Mul"))
        if square is None or not self._is_square(square, centred):
            return None
        return self._finish(x, centred, square, divided=centred)

    def rms_norm(self, square: ir.Node) -> Match | None:
        x = square.inputs[0]
        if x is None or not self._is_square(square, x):
            return None
        self._nodes.append(square)
        return self._finish(x, None, square, divided=x)

    def _finish(
        self, x: ir.Value, centred: ir.Value | None, square: ir.Node, divided: ir.Value
    ) -> Match | None:
        mean = self._only(square.outputs[0], "ReduceMean")
        shifted = None if mean is None or not self._is_mean(mean) else self._after(mean, "Add")
        epsilon = None if shifted is None else self._other_number(shifted, mean)
        root = None if shifted is None or epsilon is None else self._after(shifted, "Sqrt")
        ratio = None if root is None else self._quotient(root, divided)
        scaled = None if ratio is None else self._after(ratio, "Mul")
        if scaled is None or ratio is None or epsilon is None:
            return None
        if centred is not None and not self._is_private(centred):
            return None
        scale = self._other(scaled, ratio.outputs[0])
        if scale is None:
            return None
        output, bias = scaled.outputs[0], None
        if centred is not None and not self._scope.escapes(output):
            added = self._scope.reader(output)
            if added is not None and added.op_type == "Add" and not added.domain:
                bias = self._other(added, output)
                if bias is not None:
                    self._nodes.append(added)
                    output = added.outputs[0]
        nodes = tuple(self._nodes)
        return Match(nodes, x, scale, bias, epsilon, centred is not None, output)

    def _quotient(self, root: ir.Node, divided: ir.Value) -> ir.Node | None:
        """Returns the node that divides by a root, at once or by way of its reciprocal."""
        step = self._scope.reader(root.outputs[0])
        if step is None or step.domain:
            return None
        self._nodes.append(step)
        if step.op_type == "Div" and tuple(step.inputs) == (divided, root.outputs[0]):
            return step
        one = step.op_type == "Div" and self._number(step, 0) == 1.0
        if step.op_type != "Reciprocal" and not one:
            return None
        product = self._after(step, "Mul")
        return product if product is not None and divided in product.inputs else None

    def _only(self, value: ir.Value, op_type: str) -> ir.Node | None:
        node = self._scope.reader(value)
        if node is None or node.op_type != op_type or node.domain:
            return None
        self._nodes.append(node)
        return node

    def _after(self, node: ir.Node, op_type: str) -> ir.Node | None:
        return self._only(node.outputs[0], op_type)

    def _one_of(self, value: ir.Value, op_types: tuple[str, ...]) -> ir.Node | None:
        for use in value.uses():
            node = use.node
            fits = node.op_type in op_types and not node.domain and self._scope.has(node)
            if fits and self._is_square(node, value):
                self._nodes.append(node)
                return node
        return None

    def _is_private(self, value: ir.Value) -> bool:
        """Says whether only nodes on the way read a value."""
        inside = all(use.node in self._nodes for use in value.uses())
        return inside and not self._scope.escapes(value)

    def _is_square(self, node: ir.Node, value: ir.Value) -> bool:
        if node.op_type == "Mul":
            return tuple(node.inputs) == (value, value)
        is_base = node.op_type == "Pow" and node.inputs[0] is value
        return is_base and self._number(node, 1) == 2.0

    def _is_mean(self, node: ir.Node) -> bool:
        """Says whether a ReduceMean is over the last axis and keeps it."""
        site = self._scope.site(node)
        axes = site.attribute("axes", None)
        if len(node.inputs) > 1:
            given = site.constant(1)
            axes = None if given is None else given.tolist()
        x = node.inputs[0]
        last = len(x.shape) - 1 if x is not None and x.shape is not None else -1
        keeps = site.attribute("keepdims", 1) == 1
        return keeps and axes is not None and list(axes) in ([-1], [last])

    def _number(self, node: ir.Node, position: int) -> float | None:
        value = self._scope.site(node).constant(position)
        if value is None or value.size != 1 or value.ndim > 1 or value.dtype.kind not in "fi":
            return None
        return float(value.reshape(-1)[0])

    def _other(self, node: ir.Node, value: ir.Value) -> ir.Value | None:
        """Returns the operand of a commutative node that is not this one."""
        first, second = node.inputs
        return first if second is value else second

    def _other_number(self, node: ir.Node, producer: ir.Node | None) -> float | None:
        first = producer is not None and node.inputs[0] is producer.outputs[0]
        return self._number(node, 1 if first else 0)
