"""Function bodies: model-local functions, and the ones the ONNX schemas define for operators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx
import onnx_ir as ir

from tenonnx import graph as graphs
from tenonnx.errors import InvalidGraph, NotSupported
from tenonnx.graph.validation import schema_of as schema_of

# Bodies nest a few levels deep at most; more means that they expand into themselves.
MAX_ROUNDS = 32

# Functions may expand to so many nodes, whatever the size of the model that calls them.
MAX_EXPANDED_NODES = 50_000

# They may expand to so many nodes for each node of the model, if that is more.
MAX_GROWTH = 64

# Sizes are not counted beyond it: they double with every function of a chain.
_MAX_COUNTED_SIZE = 1 << 60


def inline_functions(model: ir.Model, limit: int | None = None) -> None:
    """Replace calls of model-local functions by their bodies; nodes keep their own versions.

    Args:
        model: Changed in place.
        limit: How many nodes that may make; as many as the model's size allows if ``None``.

    Raises:
        InvalidGraph: Functions that call each other in a cycle, or so often that their nodes are
            too many, or do not fit their calls.
        NotSupported: A graph that a call gives refers to an attribute of the function around it.
    """
    if not model.functions:
        return
    from tenonnx.graph.function_graphs import write_out_graphs
    from tenonnx.graph.inlining import Inliner

    graphs.resolve_versions(model)
    for function in model.functions.values():
        # Every node carries its version already, so a function's imports need not agree with
        # the model's, which the pass would insist on.
        function.opset_imports.clear()
    inliner = Inliner()
    try:
        write_out_graphs(model, limit or MAX_EXPANDED_NODES)
        inliner.requires(model)  # there are no cycles
        _refuse_explosion(model, limit)
        with _outputs_aside(model.graph):
            inliner(model)
    except (InvalidGraph, NotSupported):
        raise
    except (ValueError, ir.passes.InvariantError, ir.passes.PassError) as error:
        raise InvalidGraph(f"the model's functions cannot be inlined: {error}") from error
    except RuntimeError as error:  # what onnx_ir makes of any exception, with its own insides
        why = next(_unmade(model), "they do not fit their calls")
        raise InvalidGraph(f"the model's functions cannot be inlined: {why}") from error


def _unmade(model: ir.Model) -> Iterator[str]:
    """Return what functions read that nothing in them makes."""
    for function in model.functions.values():
        for node in graphs.nodes(function):
            for value in filter(None, node.inputs):
                if value.producer() is None and value.graph is None:
                    name = f"{function.domain}::{function.name}"
                    yield f"{name} reads {value.name!r}, which nothing in it makes"


@contextlib.contextmanager
def _outputs_aside(graph: ir.Graph) -> Iterator[None]:
    """Have nodes read the graph's outputs, all of which the pass would look at for every call."""
    readers = [ir.Node("tenonnx", "Output", [v], num_outputs=0) for v in graph.outputs]
    graph.outputs.clear()
    graph.extend(readers)
    yield
    outputs = [value for reader in readers for value in reader.inputs if value is not None]
    graph.remove(readers, safe=True)
    graph.outputs.extend(outputs)


def _refuse_explosion(model: ir.Model, limit: int | None) -> None:
    """Count the nodes that inlining makes: a chain of functions that call twice doubles them.

    Raises:
        InvalidGraph: They are too many for a model of this size.
    """
    bodies = {name: list(graphs.nodes(function)) for name, function in model.functions.items()}
    top = list(graphs.nodes(model.graph))
    sizes = _expanded_sizes(bodies)
    expanded = sum(sizes.get(node.op_identifier(), 1) for node in top)
    written = len(top) + sum(map(len, bodies.values()))
    if expanded > (limit := limit or max(MAX_EXPANDED_NODES, MAX_GROWTH * written)):
        largest = max(top, key=lambda node: sizes.get(node.op_identifier(), 1))
        raise InvalidGraph(
            f"the model's functions expand to more than {limit:,} nodes, since they call each "
            f"other again and again: {graphs.label(largest)} alone stands for "
            f"{sizes[largest.op_identifier()]:.3g}",
            hint="session.function_expansion_node_limit allows more",
        )


def _expanded_sizes(
    bodies: Mapping[ir.OperatorIdentifier, Sequence[ir.Node]],
) -> dict[ir.OperatorIdentifier, int]:
    """Return how many nodes a call of each function stands for; the calls have no cycle."""
    sizes: dict[ir.OperatorIdentifier, int] = {}
    waiting = list(bodies)
    while waiting:
        name = waiting[-1]
        called = (node.op_identifier() for node in bodies[name])
        if unknown := {c for c in called if c in bodies and c not in sizes}:
            waiting += unknown
            continue
        waiting.pop()
        count = sum(sizes.get(node.op_identifier(), 1) for node in bodies[name])
        sizes[name] = min(count, _MAX_COUNTED_SIZE)
    return sizes


def expand_unsupported(model: ir.Model, is_supported: Callable[[ir.Node], bool]) -> list[ir.Node]:
    """Replace operators that nobody runs by the body that their schema gives them.

    Returns:
        The nodes without a body, which are left as they are.
    """
    for _ in range(MAX_ROUNDS):
        if not (wanted := unsupported(model, is_supported)):
            break
        if any(map(_lacks_types, wanted)):
            from onnx_ir.passes.common import ShapeInferencePass

            # Types that cannot be inferred stay unknown; in strict mode they would be an error for
            # all nodes.
            ShapeInferencePass(check_type=False, strict_mode=False)(model)
        expanded = [_attach_body(model, node, index) for index, node in enumerate(wanted)]
        if not any(expanded):
            break
        inline_functions(model)
    else:
        wanted = unsupported(model, is_supported)
    return wanted


def unsupported(model: ir.Model, is_supported: Callable[[ir.Node], bool]) -> list[ir.Node]:
    """Return the nodes of a model, in subgraphs too, that nobody runs."""
    return [
        node
        for node in graphs.nodes(model.graph)
        if not graphs.is_control_flow(node) and not is_supported(node)
    ]


def _attach_body(model: ir.Model, node: ir.Node, index: int) -> bool:
    """Make a node the only call of a model-local function that holds its schema's body."""
    schema = schema_of(node)
    if schema is None or not node.attributes.keys() <= schema.attributes.keys():
        return False
    body = schema_body(node) or _contextual_body(node)
    if body is None:
        return False
    from tenonnx.graph.protos import read_quietly

    # An optional output that the node does not name may have no producer in the body.
    del body.output[len(node.outputs) :]
    function = read_quietly(ir.serde.deserialize_function, body)
    node.overload = f"{node.overload}body{index}"
    for name, _ in tuple(graphs.subgraphs(node)):
        # A context-dependent body has its graph attributes built in already.
        node.attributes.pop(name)
    _add_default_attributes(node)
    # Inlining hands a call's metadata on to the nodes of the body.
    node.metadata_props.setdefault(graphs.ORIGIN_KEY, graphs.label(node))
    versions = {i.domain: i.version for i in body.opset_import}
    function.opset_imports.update(versions)
    function = ir.Function(
        node.domain,
        node.op_type,
        node.overload,
        graph=function.graph,
        attributes=list(function.attributes.values()),
    )
    model.functions[function.identifier()] = function
    return True


def _add_default_attributes(node: ir.Node) -> None:
    """Add the schema's defaults, to which bodies refer by name."""
    schema = schema_of(node)
    for name, attribute in schema.attributes.items() if schema else ():
        default = attribute.default_value
        if name not in node.attributes and default.type != onnx.AttributeProto.UNDEFINED:
            node.attributes[name] = ir.serde.deserialize_attribute(default)


def schema_body(node: ir.Node) -> onnx.FunctionProto | None:
    """Return the fixed body that an operator's schema gives it at the node's version."""
    schema = schema_of(node)
    if schema is None or not schema.has_function:
        return None
    version = max(
        (v for v in schema.function_opset_versions if v <= (node.version or 1)), default=0
    )
    if not version:
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(schema.get_function_with_opset_version(version))
    return body


def _lacks_types(node: ir.Node) -> bool:
    """Return whether a body may depend on the type of an input that is not known."""
    schema = schema_of(node)
    if schema is None or not schema.has_context_dependent_function:
        return False
    return any(value is not None and value.type is None for value in node.inputs)


def _contextual_body(node: ir.Node) -> onnx.FunctionProto | None:
    """Return the body that depends on the node's attributes and input types."""
    schema = schema_of(node)
    if schema is None or not schema.has_context_dependent_function:
        return None
    versions = schema.context_dependent_function_opset_versions
    version = max((v for v in versions if v <= (node.version or 1)), default=0)
    if not version:
        return None
    types = [_type_bytes(value) for value in node.inputs]
    proto = ir.serde.serialize_node(node)
    body = onnx.FunctionProto()
    body.ParseFromString(
        schema.get_context_dependent_function_with_opset_version(
            version, proto.SerializeToString(), types
        )
    )
    # The schema makes none of types that it needs and that are not known.
    return body if body.node else None


def _type_bytes(value: ir.Value | None) -> bytes:
    if value is None or value.type is None:
        return b""
    return bytes(ir.serde.serialize_value(value).type.SerializeToString())
