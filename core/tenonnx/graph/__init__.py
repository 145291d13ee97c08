"""Functions on ``onnx_ir`` graphs for every stage, and checks of a loaded model."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenonnx.errors import InvalidGraph, MalformedGraph
from tenonnx.process import interruption

if TYPE_CHECKING:
    import onnx_ir as ir

# The values of a graph and of each graph around it, the innermost first.
Scopes: TypeAlias = tuple[Set["ir.Value"], ...]

GRAPH = 5
# Kinds of attributes that hold graphs, as numbers of `onnx_ir.AttributeType`.
BODIES = (GRAPH, 10)

# ai.onnx operators that the runtime runs itself, as nested code.
CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})


# Inputs beyond which a node is not given all of them anew for each that is replaced.
MAX_REPLACED_INPUTS = 64

# Nodes that are looked at before it is asked whether to stop.
NODES_PER_INTERRUPT_CHECK = 256

# Metadata of nodes from a schema's body: the label of the node that the body replaced.
ORIGIN_KEY = "tenonnx.origin"

# Metadata of products in float32 that were in bfloat16: `bfloat16`, which they may round to.
FACTORS_KEY = "tenonnx.factors"


def is_control_flow(node: ir.Node) -> bool:
    """Return whether the runtime, not a provider, runs a node."""
    return node.domain == "" and node.op_type in CONTROL_FLOW


def label(node: ir.Node) -> str:
    """Name a node for people: ``Conv 'stem' (ai.onnx, opset 17)``."""
    name = node.name or (node.outputs[0].name if node.outputs else "")
    origin = node.metadata_props.get(ORIGIN_KEY, "")
    return labeled(node.op_type, name, node.domain, node.version, origin)


def labeled(op_type: str, name: str | None, domain: str, version: int | None, origin: str) -> str:
    """Return a node's label, given its facts; ``origin`` is that of the node it replaced."""
    opset = f", opset {version}" if version else ""
    own = f"{op_type} '{name or '?'}' ({domain or 'ai.onnx'}{opset})"
    return f"{own} in the body of {origin}" if origin else own


def has_bodies(node: ir.Node) -> bool:
    """Return whether a node holds graphs; few do, and asking is cheaper than looking for them."""
    for attribute in node.attributes.data.values():  # noqa: SIM110  # any() takes twice the time
        if attribute.type in BODIES:
            return True
    return False


def subgraphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """Yield a node's graph attributes by name."""
    for name, attribute in node.attributes.data.items():
        if attribute.type not in BODIES or attribute.is_ref():
            continue
        if attribute.type == GRAPH:
            yield name, attribute.as_graph()
        else:
            for graph in attribute.as_graphs():
                yield name, graph


def nodes(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """Yield the nodes of a graph or function, after each those of its subgraphs.

    The same nodes as ``onnx_ir``'s own traversal, in a fifth of its time; and that one fails at
    an attribute that refers to a function's and so has no graph of its own.
    """
    for node in graph:
        yield node
        if has_bodies(node):
            for _, inner in subgraphs(node):
                yield from nodes(inner)


def graphs(model: ir.Model) -> tuple[ir.Graph, ...]:
    """Return a model's graph and all graphs inside it, each after the one that holds it."""
    found = [model.graph]
    for graph in found:
        for node in graph:
            if has_bodies(node):
                found += (inner for _, inner in subgraphs(node))
    return tuple(found)


def operators(model: ir.Model) -> set[str]:
    """Return the names of the operators that a model's nodes have, whatever their domains."""
    return {node.op_type for node in nodes(model.graph)}


def captures(node: ir.Node) -> Iterator[ir.Value]:
    """Yield every value that a node's subgraphs read from outside themselves, with repeats."""
    for _, graph in subgraphs(node):
        inside: set[ir.Value] = {*graph.inputs, *graph.initializers.values()}
        for inner in graph:
            inside.update(inner.outputs)
        for value in (*reads(graph), *graph.outputs):
            if value not in inside:
                yield value


def reads(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield every value that the nodes of a graph and of its subgraphs read, with repeats."""
    for node in graph:
        yield from inputs(node)


def inputs(node: ir.Node) -> Iterator[ir.Value]:
    """Yield every value a node reads, through its subgraphs too."""
    for value in node.inputs:
        if value is not None:
            yield value
    if has_bodies(node):
        yield from captures(node)


@functools.cache
def _has_lists_of_readers() -> bool:
    """Return whether onnx_ir has the private parts that spare copies of a wide node's inputs."""
    import onnx_ir as ir

    parts = (ir.Node, "_inputs"), (ir.Value, "_add_usage"), (ir.Value, "_remove_usage")
    return all(hasattr(owner, name) for owner, name in parts)


def replace_input(node: ir.Node, position: int, value: ir.Value | None) -> None:
    """Have a node read another value at a position."""
    if len(node.inputs) <= MAX_REPLACED_INPUTS or not _has_lists_of_readers():
        node.replace_input_with(position, value)
        return
    # onnx_ir copies all inputs for each, so replacing all of them takes the square of their number.
    read: Any = node._inputs
    if not isinstance(read, list):
        read = list(read)
        node._inputs = read  # it promises no more than a sequence
    if (old := read[position]) is not None:
        old._remove_usage(node, position)
    if value is not None:
        value._add_usage(node, position)
    read[position] = value


def detach(node: ir.Node) -> None:
    """Have a node read nothing any more."""
    if not _has_lists_of_readers():
        for position in range(len(node.inputs)):
            node.replace_input_with(position, None)
        return
    # onnx_ir makes all inputs anew for each that goes.
    for position, value in enumerate(node.inputs):
        if value is not None:
            value._remove_usage(node, position)
    node._inputs = (None,) * len(node.inputs)


def replace_uses(old: ir.Value, new: ir.Value) -> None:
    """Have all nodes that read one value read another; outputs of graphs stay what they are."""
    for reader, position in old.uses():
        replace_input(reader, position, new)


def constant_of(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor that a value is; ``None`` if a run or a caller may make it another."""
    if value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return value.const_value


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """Return an attribute's value, or a default where the node has none of that name."""
    # A dict's own get: that of the attributes themselves takes ten times as long.
    found = node.attributes.data.get(name)
    return default if found is None else found.value


def python_attributes(node: ir.Node) -> dict[str, Any]:
    """Return a node's attributes as Python values; tensors become numpy arrays, types their text.

    Lists are sequences: tuples, or a ``LongList`` of what lies in the model's file.
    """
    return {name: _python_value(attribute) for name, attribute in node.attributes.items()}


def _python_value(attribute: ir.Attr) -> Any:
    import onnx_ir as ir

    match attribute.type:
        case ir.AttributeType.TENSOR:
            return array_of(attribute.value)
        case ir.AttributeType.TENSORS:
            return tuple(array_of(tensor) for tensor in attribute.value)
        case ir.AttributeType.TYPE_PROTO | ir.AttributeType.TYPE_PROTOS:
            return str(attribute.value)
    return attribute.value
    return attribute.value


def array_of(tensor: ir.TensorProtocol) -> np.ndarray[Any, Any]:
    """Return a tensor as numpy's array; strings become ``str`` objects.

    Raises:
        InvalidGraph: A string is not UTF-8.
    """
    import onnx_ir as ir

    array = tensor.numpy()
    if tensor.dtype != ir.DataType.STRING:
        return array
    try:
        decoded = [s.decode() if isinstance(s, bytes) else s for s in array.ravel()]
    except UnicodeDecodeError as error:
        raise InvalidGraph(f"a string of a model is UTF-8, and {error.object!r} is not") from None
    return np.array(decoded, dtype=object).reshape(array.shape)


def resolve_versions(model: ir.Model) -> None:
    """Write on every node the opset version it is written in, functions' own imports first.

    Raises:
        InvalidGraph: A node's domain has no opset import.
    """
    _write_versions(nodes(model.graph), model.opset_imports)
    for function in model.functions.values():
        imports = {**model.opset_imports, **function.opset_imports}
        _write_versions(nodes(function.graph), imports)


def _write_versions(unresolved: Iterable[ir.Node], imports: Mapping[str, int]) -> None:
    versions = {("" if domain == "ai.onnx" else domain): v for domain, v in imports.items()}
    for node in unresolved:
        if node.version is not None:
            continue
        node.version = versions.get(node.domain)
        if node.version is None:
            if node.domain == "":
                raise InvalidGraph(
                    f"the model uses {node.op_type} but imports no version of ai.onnx",
                    hint="add an entry to opset_import, for example ai.onnx version 21",
                )
            # A model-local function's domain needs no import; other domains start at 1.
            node.version = 1


def check_and_sort(model: ir.Model) -> list[ir.Node]:
    """Put nodes in an order in which they can run, and write on each its opset version.

    It is done after every transform, so all of it in one walk.

    Returns:
        The nodes, after each those of its subgraphs.

    Raises:
        InvalidGraph: A cycle, a name that nothing produces, or one produced twice; or a node's
            domain has no opset import.
    """
    found: list[ir.Node] = []
    _sort(model.graph, (), found)
    _write_versions(found, model.opset_imports)
    return found


def _sort(graph: ir.Graph, outer: Scopes, found: list[ir.Node]) -> None:
    """Sort a graph that may read values of the graphs around it; list its nodes."""
    # Nearly all models are in order; sorting would take several times as long as this check.
    before = len(found)
    if _holds(graph, outer, found):
        return
    own = {*graph.inputs, *graph.initializers.values()}
    _refuse_dangling(graph, (own.union(*(node.outputs for node in graph)), *outer))
    try:
        graph.sort()
    except ValueError as error:
        raise MalformedGraph(f"the graph '{graph.name}' has a cycle: {error}") from error
    del found[before:]
    if not _holds(graph, outer, found):
        raise MalformedGraph(f"the graph '{graph.name}' has a cycle through its subgraphs")


def _holds(graph: ir.Graph, outer: Scopes, found: list[ir.Node]) -> bool:
    """Check a graph and the graphs in it; return whether its nodes are in order, and list them."""
    available = {*graph.inputs, *graph.initializers.values()}
    scopes = (available, *outer)
    makers: dict[str | None, ir.Node | None] = {value.name: None for value in graph.inputs}
    for node in graph:
        if not len(found) % NODES_PER_INTERRUPT_CHECK:
            interruption.check()
        for value in node.inputs:
            if value is not None and value not in available and not _is_in(value, outer):
                return False
        found.append(node)
        holds_graphs = has_bodies(node)
        if holds_graphs and not all(_is_in(value, scopes) for value in captures(node)):
            return False
        for output in node.outputs:
            name = output.name
            if name and name in makers:
                raise _made_twice(name, makers[name], node)
            makers[name] = node
            available.add(output)
        if holds_graphs:
            for _, inner in subgraphs(node):
                _sort(inner, scopes, found)
    for output in graph.outputs:
        if not _is_in(output, scopes):
            raise MalformedGraph(f"nothing produces the graph output '{output.name}'")
    return True


def _is_in(value: ir.Value, scopes: Scopes) -> bool:
    return any(value in scope for scope in scopes)


def _refuse_dangling(graph: ir.Graph, known: Scopes) -> None:
    for node in graph:
        for value in inputs(node):
            if not _is_in(value, known):
                _refuse_outer_output(node, value, known)
                raise MalformedGraph(
                    f"{label(node)} reads '{value.name}', which is no input or initializer and "
                    "which no node produces",
                    hint="the model was cut or edited by hand; onnx.checker.check_model may say "
                    "more",
                )


def _refuse_outer_output(node: ir.Node, value: ir.Value, known: Scopes) -> None:
    """Raise for a body that returns a value of the graphs around it, which ONNX forbids."""
    outer = any(value.name == other.name for scope in known for other in scope)
    for name, body in subgraphs(node):
        if outer and any(value is output for output in body.outputs):
            raise MalformedGraph(
                f"{name} of {label(node)} returns '{value.name}', a value of the graph around it; "
                "a body returns what its own nodes make",
                hint=f"put an Identity between '{value.name}' and the output of {name}",
            )


def _made_twice(name: str, first: ir.Node | None, node: ir.Node) -> MalformedGraph:
    held = "a graph input" if first is None else f"an output of {label(first)}"
    return MalformedGraph(
        f"{label(node)} produces '{name}', which {held} already is: every name is assigned once"
    )
