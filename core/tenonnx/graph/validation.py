"""Whether a node is as its operator's schema, or the specification of control flow, wants it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

from tenonnx import graph as graphs
from tenonnx.errors import InvalidGraph, MalformedGraph
from tenonnx.graph.values import NodeInfo, node_info

if TYPE_CHECKING:
    import onnx_ir as ir


def schema_of(node: ir.Node | NodeInfo) -> Any:
    """Return the ``OpSchema`` of a node's operator; ``None`` for operators that are not ONNX's."""
    import onnx

    try:
        return onnx.defs.get_schema(node.op_type, node.version or 1, node.domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: a version of more than 31 bits
        return None


def misfit(node: ir.Node | NodeInfo) -> str | None:
    """Return in what a node differs from its operator's schema; ``None`` if in nothing.

    That is, in the number of its inputs or outputs, one that is left out, or in the type of an
    attribute. Asking takes longer than compiling the node: only of nodes that failed is it asked.
    """
    if (schema := schema_of(node)) is None:
        return None
    info = node_info(node)
    for what, count, least, most in (
        ("inputs", len(info.inputs), schema.min_input, schema.max_input),
        ("outputs", len(info.outputs), schema.min_output, schema.max_output),
    ):
        if not least <= count <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            wanted = f"at least {least}" if most > 1000 else wanted
            return f"{info.label} has {count} {what}, it needs {wanted}"
    for given, wanted_input in zip(info.inputs, schema.inputs, strict=False):
        if given is None and wanted_input.option.name == "Single":
            return f"{info.label} lacks its input {wanted_input.name}"
    for name, kind in info.kinds.items():
        formal = schema.attributes.get(name)
        if formal is not None and formal.type.value != kind:
            known = {each.value: each.name for each in type(formal.type)}
            found = known.get(kind, "of no type")
            return f"{info.label}: its attribute {name} is {found}, it needs {formal.type.name}"
    return None


def check_names(graph: ir.Graph, around: tuple[Set[str | None], ...] = ()) -> None:
    """Check that every name of a graph and of the graphs in it stands for one thing.

    The names of Constants do not count: onnxruntime makes weights of them before it compares.

    A body's inputs and initializers may hide values of the graphs around it, and so may what its
    nodes make, if it is made only after the body. That a graph's nodes make nothing twice has been
    checked before.

    Args:
        graph: The graph.
        around: The names that graphs around it have given so far.

    Raises:
        MalformedGraph: Inputs of a graph or nodes of it have one name, or a body's node makes
            what the graphs around it have.
    """
    made: set[str | None] = {value.name for value in graph.inputs}
    if len(made) < len(graph.inputs):
        names = [value.name for value in graph.inputs]
        if twice := next((name for name in names if name and names.count(name) > 1), None):
            raise MalformedGraph(f"the graph '{graph.name}' has two inputs called '{twice}'")
    made.update(graph.initializers)
    called: set[str] = set()
    for node in graph:
        if (name := node.name) and (node.op_type != "Constant" or node.domain):
            if name in called:
                raise MalformedGraph(f"{graphs.label(node)} is not the only node of that name")
            called.add(name)
        if graphs.has_bodies(node):
            for _, inner in graphs.subgraphs(node):
                check_names(inner, (made, *around))
        for output in node.outputs:
            if around and output.name and any(output.name in names for names in around):
                raise MalformedGraph(
                    f"{graphs.label(node)} makes '{output.name}', which is there already in a "
                    "graph around its own: every name is assigned once"
                )
            made.add(output.name)


def check_bodies(node: ir.Node) -> None:
    """Check a control-flow node against its specification.

    Raises:
        InvalidGraph: Inputs are missing, or a body, or it takes or makes another number of values;
            or the node has one that its operator has not.
    """
    bodies = dict(graphs.subgraphs(node))
    known = {"then_branch", "else_branch"} if node.op_type == "If" else {"body"}
    for name in bodies.keys() - known:
        raise InvalidGraph(f"{graphs.label(node)} has a graph {name!r}, its operator has not")
    alone = node.op_type == "If"
    if not node.inputs or (alone and (len(node.inputs) > 1 or node.inputs[0] is None)):
        raise MalformedGraph(misfit(node) or f"{graphs.label(node)} has no inputs")
    match node.op_type:
        case "If":
            for name in ("then_branch", "else_branch"):
                body = _body(node, bodies, name)
                _expect(node, name, "outputs", len(body.outputs), len(node.outputs))
                _expect(node, name, "inputs", len(body.inputs), 0)
        case "Loop":
            body, state = _body(node, bodies, "body"), max(len(node.inputs) - 2, 0)
            _expect(node, "body", "inputs", len(body.inputs), 2 + state)
            _at_least(node, len(body.outputs) - 1, max(state, len(node.outputs)))
        case "Scan":
            body = _body(node, bodies, "body")
            _expect_kinds_of_scan(node)
            # Scan 8 had sequence_lens as its first input, which the body does not get.
            first = 1 if (node.version or 9) < 9 else 0
            _expect(node, "body", "inputs", len(body.inputs), len(node.inputs) - first)
            attribute = node.attributes.get("num_scan_inputs")
            scanned = 0 if attribute is None else attribute.as_int()
            if not 0 < scanned <= len(body.inputs):
                raise InvalidGraph(f"{graphs.label(node)}: num_scan_inputs is missing or too large")
            states = len(body.inputs) - scanned
            _at_least(node, len(body.outputs), states)
            _expect(node, "body", "outputs", len(body.outputs), len(node.outputs))
            _expect_one_each(node, ("scan_input_axes", "scan_input_directions"), scanned)
            made = len(body.outputs) - states
            _expect_one_each(node, ("scan_output_axes", "scan_output_directions"), made)
            _expect_one_each(node, ("directions",), scanned)
        case "SequenceMap":
            body = _body(node, bodies, "body")
            _expect(node, "body", "inputs", len(body.inputs), len(node.inputs))
            _expect(node, "body", "outputs", len(body.outputs), len(node.outputs))


def _expect_kinds_of_scan(node: ir.Node) -> None:
    for name, attribute in node.attributes.items():
        wanted = "INT" if name == "num_scan_inputs" else "GRAPH" if name == "body" else "INTS"
        if (found := attribute.type.name) != wanted:
            text = f"{graphs.label(node)}: its attribute {name} is {found}, it needs {wanted}"
            raise InvalidGraph(text)


def _expect_one_each(node: ir.Node, names: Sequence[str], wanted: int) -> None:
    for name in names:
        if name in node.attributes:
            _expect(node, name, "numbers", len(node.attributes[name].as_ints()), wanted)


def _body(node: ir.Node, bodies: dict[str, ir.Graph], name: str) -> ir.Graph:
    if name not in bodies:
        raise InvalidGraph(f"{graphs.label(node)} lacks its graph attribute {name}")
    return bodies[name]


def _expect(node: ir.Node, name: str, what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise InvalidGraph(
            f"{graphs.label(node)}: {name} has {found} {what}, the node needs {wanted}"
        )


def _at_least(node: ir.Node, found: int, wanted: int) -> None:
    if found < wanted:
        raise InvalidGraph(
            f"{graphs.label(node)}: body makes {found} values, the node needs {wanted}"
        )
