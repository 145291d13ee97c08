"""From a placement to a program: every segment compiled, every value's home known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx import graph as graphs
from tenonnx.errors import EPFail, InvalidGraph, NodeRefused
from tenonnx.graph.validation import misfit
from tenonnx.graph.values import (
    GraphInfo,
    ValueInfo,
    described,
    node_info,
    value_info,
    value_infos,
)
from tenonnx.planning.placement import PlacedGraph, PlacedSegment, Placement
from tenonnx.planning.program import Block, Control, Program, homes_of
from tenonnx.process.interruption import Stopped
from tenonnx.provider import HOST, Device, Provider, Segment, Step
from tenonnx.weights.weight import weight_in

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight


def lower(placed: PlacedGraph) -> tuple[Program, Placement]:
    """Return what providers compile a graph to, and its placement."""
    with described():
        placement, lowering = placed.described(), Lowering()
        block = lowering.block(placed)
        inputs = tuple((value, HOST) for value in block.graph.inputs)
        return Program(inputs, block.graph.outputs, block, lowering.homes), placement


class Lowering:
    """The lowering of a placed graph, and of those inside it, to a program.

    Attributes:
        homes: Where each value appears first that does not on the host.
    """

    def __init__(self) -> None:
        self.homes: dict[ValueInfo, Device] = {}

    def block(self, placed: PlacedGraph) -> Block:
        """Return the steps of a graph."""
        items: list[Step | Control] = []
        for each in placed.items:
            if isinstance(each, PlacedSegment):
                items += self._steps(each)
                continue
            bodies = {name: self.block(body) for name, body in each.bodies.items()}
            node, attributes = node_info(each.node), _integers(each.node)
            if each.own is not None:
                reads = value_infos(graphs.captures(each.node))
                for step in self._steps(each.own):
                    control = Control(node, reads, attributes, bodies, step)
                    items.append(control if step.bodies else step)
            else:
                reads = value_infos(graphs.inputs(each.node))
                self._settle(control := Control(node, reads, attributes, bodies))
                items.append(control)
        return Block.of(GraphInfo.of(placed.graph), items)

    def _steps(self, placed: PlacedSegment) -> Sequence[Step]:
        steps = compile_segment(placed.provider, placed.segment)
        self.homes.update(homes_of(steps))
        return steps

    def _settle(self, control: Control) -> None:
        """Give a control-flow node's outputs the home of what its bodies leave there."""
        bodies = [body.graph.outputs for body in control.bodies.values()]
        # The body of a Loop returns its condition ahead of the values that become outputs.
        skip = 1 if control.node.op_type == "Loop" else 0
        for position, output in enumerate(control.node.outputs):
            each = [outputs[position + skip] for outputs in bodies]
            # A constant is wherever it is read, so it does not decide.
            homes = [self.homes.get(value, HOST) for value in each if value.constant is None]
            if len({home.id for home in homes}) == 1 and homes[0].id != HOST.id:
                self.homes[output] = homes[0]


def _integers(node: ir.Node) -> dict[str, Any]:
    """Return the attributes of a node that are integers, or lists of them."""
    import onnx_ir as ir

    kinds = ir.AttributeType.INT, ir.AttributeType.INTS
    return {name: each.value for name, each in node.attributes.items() if each.type in kinds}


def is_constant(value: ir.Value) -> bool:
    """Return whether a value is a weight that no caller can override."""
    return value.is_initializer() and not value.is_graph_input()


def weight_of(value: ir.Value | None) -> Weight | None:
    """Return a constant's handle in the weights' registry; ``None`` for what has none."""
    tensor = value.const_value if value is not None and is_constant(value) else None
    return weight_in(tensor)


def compile_segment(provider: Provider, segment: Segment) -> Sequence[Step]:
    """Ask a provider for the steps of a segment and check that they make what is needed.

    Raises:
        EPFail: The provider failed or left out an output; a ``NodeRefused`` if the node is why.
        InvalidGraph: It failed, and a node violates its operator's schema.
    """
    try:
        compiled: Any = provider.compile(segment)
        steps = list(compiled) if isinstance(compiled, Iterable) else [compiled]
    except Stopped:  # a limit of the load is no failure of the provider
        raise
    except Exception as error:
        nodes = [node_info(node) for node in segment.nodes]
        # Most providers trust a node to be as its schema says: its fault is the cause, not theirs.
        if wrong := next(filter(None, map(misfit, nodes)), None):
            raise InvalidGraph(wrong) from error
        from tenonnx.planning.node_errors import describe_failure

        kind = NodeRefused if isinstance(error, (ValueError, TypeError)) else EPFail
        said = describe_failure(nodes, error)
        raise kind(f"{provider.name} cannot compile {said}") from error
    if not all(isinstance(step, Step) for step in steps):
        raise EPFail(
            f"{provider.name} compiled {graphs.label(segment.nodes[0])}: "
            f"expected a list of Steps, got {compiled!r}"
        )
    # Generated code calls the steps in this order. A wrong order would be an unbound variable in
    # the first run, where the provider is not known any more.
    made: set[ValueInfo] = set()
    inside = {value for step in steps for value in step.outputs}
    for step in steps:
        early = next((v for v in step.inputs if v in inside and v not in made), None)
        if early is not None:
            reader = step.nodes[0].label if step.nodes else "a step"
            raise EPFail(
                f"{provider.name} compiled {reader} before the step that makes '{early.name}'"
            )
        made.update(step.outputs)
    for value in segment.outputs:
        if value_info(value) not in made:
            producer = value.producer()
            raise EPFail(
                f"{provider.name} compiled {graphs.label(producer) if producer else '?'} "
                f"without producing '{value.name}'"
            )
    return steps
