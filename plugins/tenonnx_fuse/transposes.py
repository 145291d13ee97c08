"""Transposes that cancel out across regions of nodes that do the same in any order of axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from tenonnx import HOST, TransformContext
from tenonnx.graph import graphs
from tenonnx.graph.sizes import forget, integers_of, operand, rank_of
from tenonnx.graph.traits import BROADCASTING, REDUCTIONS, UNARY
from tenonnx_fuse.bypass import bypass, note_removed
from tenonnx_fuse.constants import derived
from tenonnx_fuse.known import attribute, permutation, weight_of

QUANTIZING = frozenset({"DequantizeLinear", "QuantizeLinear"})

# Of whose inputs the first is transposed.
BY_FIRST_INPUT = UNARY | REDUCTIONS | QUANTIZING | {"Pad"}

# The most nodes of a region.
MAX_REGION_NODES = 4096

Order = tuple[int, ...]


def cancel_transposes(model: ir.Model, context: TransformContext) -> bool:
    """Take out Transposes before and behind what works element by element.

    The nodes between then read values as they were before the first Transpose. Where the region
    also reads other values, or others read its, those are turned, if that makes less Transposes.
    """
    done: Counter[str] = Counter()
    for graph in graphs(model):
        seen: set[ir.Node] = set()
        for node in tuple(graph):
            order = _order_of(node) if node.graph is graph else None
            if order is None or order == tuple(range(len(order))):
                continue
            for use in tuple(node.outputs[0].uses()):
                if use.node.graph is graph and use.node not in seen:
                    region = Region(order, context)
                    region.grow(use.node)
                    seen |= region.nodes.keys()
                    done["Transposes around what works in any order"] += region.turn_back()
    return note_removed(context, +done)


def _order_of(node: ir.Node | None) -> Order | None:
    """Return where a Transpose takes its axes from; ``None`` of any other node."""
    if node is None or node.op_type != "Transpose" or node.domain or len(node.outputs) != 1:
        return None
    return None if operand(node, 0) is None else permutation(node)


class Region:
    """Nodes that may as well read values as they were before they were turned.

    Args:
        order: Where the axes of what they read were taken from.
        context: Where constants are kept.

    Attributes:
        nodes: They; the values are nothing.
    """

    def __init__(self, order: Order, context: TransformContext) -> None:
        self.order = order
        self.back = tuple(order.index(axis) for axis in range(len(order)))
        self.context = context
        self.nodes: dict[ir.Node, None] = {}

    def grow(self, start: ir.Node) -> None:
        """Take a node, and all that are connected with it, if they can be turned."""
        waiting = [start]
        while waiting and len(self.nodes) < MAX_REGION_NODES:
            node = waiting.pop()
            if node in self.nodes or not self._may_turn(node):
                continue
            self.nodes[node] = None
            waiting += [use.node for use in node.outputs[0].uses()]
            makers = (value.producer() for value in self._turned(node))
            waiting += [maker for maker in makers if maker and maker.graph is node.graph]

    def _turned(self, node: ir.Node) -> Iterator[ir.Value]:
        """Give the inputs that have the order of axes, constants excepted."""
        for value in node.inputs if node.op_type in BROADCASTING else node.inputs[:1]:
            if value is not None and weight_of(value) is None:
                yield value

    def _may_turn(self, node: ir.Node) -> bool:
        if (
            node.op_type not in BY_FIRST_INPUT | BROADCASTING
            or node.domain
            or (node.version or 1) < 7  # before it, operands broadcast along a named axis
        ):
            return False
        if len(node.outputs) != 1 or node.outputs[0].is_graph_output():
            return False
        output, rank = node.outputs[0], len(self.order)
        if any(use.node.graph is not node.graph for use in output.uses()):
            return False
        if not _names_axes(node, rank):
            return False
        constants = (weight_of(value) for value in node.inputs if node.op_type in BROADCASTING)
        if any(weight is not None and len(weight.shape) > rank for weight in constants):
            return False
        turned = list(self._turned(node))
        return bool(turned) and all(
            value.producer() in self.nodes or rank_of(value) == rank for value in turned
        )

    def turn_back(self) -> int:
        """Have the nodes read the values before the Transposes; return how many that saves."""
        makers: set[ir.Node] = set()
        read: set[ir.Value] = set()
        behind: list[ir.Node] = []
        written: list[ir.Value] = []
        for node in self.nodes:
            for value in self._turned(node):
                maker = value.producer()
                if maker is not None and self._before(value) is not None:
                    makers.add(maker)
                elif maker not in self.nodes:
                    read.add(value)
            users = [u.node for u in node.outputs[0].uses() if u.node not in self.nodes]
            after = [user for user in users if _order_of(user) == self.back]
            behind += after
            written += [node.outputs[0]] if len(after) < len(users) else []
        unread = [
            maker
            for maker in makers
            if not maker.outputs[0].is_graph_output()
            and all(use.node in self.nodes for use in maker.outputs[0].uses())
        ]
        # Each value from outside, and each one that others read, costs a new Transpose. Without one
        # behind the region the Transposes would only move.
        saved = len(behind) + len(unread) - len(read) - len(written)
        if not behind or saved <= 0:
            return 0
        self._apply(behind, written)
        for maker in unread:
            graph = maker.graph
            assert graph is not None
            graph.remove(maker, safe=True)
        return saved

    def _apply(self, behind: list[ir.Node], written: list[ir.Value]) -> None:
        sources: dict[ir.Value, ir.Value] = {}
        for node in self.nodes:
            turned = set(self._turned(node))
            for position, value in enumerate(node.inputs):
                if value in turned and value is not None and value.producer() not in self.nodes:
                    node.replace_input_with(position, self._source(node, value, sources))
                elif value and node.op_type in BROADCASTING and weight_of(value):
                    node.replace_input_with(position, self._constant(node, value))
            self._turn_axes(node)
            output = node.outputs[0]
            if output.shape is not None:
                output.shape = ir.Shape([output.shape[axis] for axis in self.back])
            forget(output)
        inside = {*self.nodes, *behind}
        for value in written:
            others = [use for use in value.uses() if use.node not in inside]
            maker = value.producer()
            assert maker is not None
            # The uses are listed first: the new Transpose is one of the value's, too.
            as_before = self._transposed(maker, value, self.order)
            for use in others:
                use.node.replace_input_with(use.idx, as_before)
        for node in behind:
            _drop(node)

    def _source(
        self, node: ir.Node, value: ir.Value, sources: dict[ir.Value, ir.Value]
    ) -> ir.Value:
        """Return a value as it was before it was turned, or turned back."""
        if value not in sources:
            maker, before = value.producer(), self._before(value)
            if before is None:
                before = self._transposed(maker or node, value, self.back, ahead=maker is None)
            sources[value] = before
        return sources[value]

    def _before(self, value: ir.Value) -> ir.Value | None:
        """Return the input of the Transpose before a value; ``None`` without one."""
        maker = value.producer()
        before = operand(maker, 0) if maker and _order_of(maker) == self.order else None
        return None if before is None or before.producer() in self.nodes else before

    def _transposed(
        self, place: ir.Node, value: ir.Value, order: Order, *, ahead: bool = False
    ) -> ir.Value:
        """Return a value turned by a new node, behind one or ahead of the region."""
        node = ir.node("Transpose", [value], attributes={"perm": list(order)}, version=13)
        output, graph = node.outputs[0], place.graph
        assert isinstance(graph, ir.Graph | ir.Function)
        output.type = value.type
        if value.shape is not None:
            output.shape = ir.Shape([value.shape[axis] for axis in order])
        if ahead:
            graph.insert_before(graph[0], node)
        else:
            graph.insert_after(place, node)
        return output

    def _constant(self, node: ir.Node, value: ir.Value) -> ir.Value:
        weight = weight_of(value)
        assert weight is not None
        if np.prod(weight.shape) == 1:  # it broadcasts in any order of axes
            return value
        shape = (1,) * (len(self.order) - len(weight.shape)) + tuple(weight.shape)
        name = f"{value.name}/{','.join(map(str, self.back))}"
        key = f"turned-2:{self.back}:{weight.key}"

        def build() -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
            return weight.on(HOST).reshape(shape).transpose(self.back)  # type: ignore[no-any-return]  # numpy's

        return derived(node.graph, name, key, build, [weight], self.context)

    def _turn_axes(self, node: ir.Node) -> None:
        """Name the same axes as before in a node's attributes or constants."""
        rank = len(self.order)
        if node.op_type == "Pad":
            pads = integers_of(operand(node, 1)) or ()
            numbers = [pads[side + axis] for side in (0, rank) for axis in self.back]
            node.replace_input_with(1, self._integers(node, numbers))
        elif node.op_type in REDUCTIONS:
            axes = [self.order[axis] for axis in _axes(node, rank)]
            if "axes" in node.attributes:
                node.attributes["axes"] = ir.AttrInt64s("axes", axes)
            else:
                node.replace_input_with(1, self._integers(node, axes))

    def _integers(self, node: ir.Node, numbers: list[int]) -> ir.Value:
        name = f"{node.outputs[0].name}/{','.join(map(str, numbers))}"
        key = f"integers-1:{numbers}"
        return derived(node.graph, name, key, lambda: np.array(numbers), [], self.context)


def _names_axes(node: ir.Node, rank: int) -> bool:
    """Return whether a node names the axes that it works along by constants, if it does at all."""
    if node.op_type in REDUCTIONS:
        # Along the last axis reductions are fast, and parts of norms that are found later.
        axes = _axes(node, rank)
        return bool(axes) and rank - 1 not in axes and attribute(node, "keepdims", 1) == 1
    if node.op_type in QUANTIZING:
        return rank_of(operand(node, 1)) == 0
    if node.op_type == "Pad":
        return len(node.inputs) <= 3 and len(integers_of(operand(node, 1)) or ()) == 2 * rank
    return True


def _axes(node: ir.Node, rank: int) -> Order:
    """Return the axes that a node reduces; nothing if it does not say, or all."""
    given = attribute(node, "axes", None)
    if given is None:
        given = integers_of(operand(node, 1))
    return tuple(axis % rank for axis in given or ())


def _drop(node: ir.Node) -> None:
    """Take out a Transpose whose input has its output's order by now."""
    x, graph = operand(node, 0), node.graph
    assert x is not None
    assert graph is not None
    if bypass(node, x):
        return
    # A graph's output must keep its name and cannot be another's name.
    replacement = ir.node("Identity", [x], version=13)
    values = node.outputs, replacement.outputs
    ir.convenience.replace_nodes_and_values(graph, node, [node], [replacement], *values)
