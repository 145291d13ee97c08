"""Functions that their calls give graphs: each such call gets a function of its own.

onnx_ir's inliner gives no graph to a function. So a call that does is made to call a copy of the
function, in which the graph is written out at each node that refers to it. What the graph reads
around the call becomes an input of the copy.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator

import onnx_ir as ir

from tenonnx import graph as graphs
from tenonnx.errors import InvalidGraph, NotSupported


def write_out_graphs(model: ir.Model, limit: int) -> None:
    """Give each call of a function that has a graph as an attribute a function of its own.

    Args:
        model: Changed in place.
        limit: Nodes that the copies may have together.

    Raises:
        InvalidGraph: They would have more, as functions that call each other in a cycle do.
        NotSupported: A graph that is given refers to an attribute of the function around it.
    """
    takers = {name for name, function in model.functions.items() if any(_parameters(function))}
    if not takers:
        return
    others = [each for name, each in model.functions.items() if name not in takers]
    waiting: deque[ir.Graph | ir.Function] = deque([model.graph, *others])
    made = 0
    while waiting:
        for call in list(graphs.nodes(waiting.popleft())):
            function = model.functions.get(call.op_identifier())
            if function is None or call.op_identifier() not in takers:
                continue
            copy = _with_graphs(function, call, _free_overload(model, function))
            model.functions[copy.identifier()] = copy
            waiting.append(copy)
            made += sum(1 for _ in graphs.nodes(copy))
            if made > limit:
                raise InvalidGraph(
                    f"the model's functions expand to more than {limit:,} nodes, since calls give "
                    f"each other graphs: {graphs.label(call)} is one that is too many",
                    hint="session.function_expansion_node_limit allows more",
                )
    for name in takers:
        del model.functions[name]


def _free_overload(model: ir.Model, function: ir.Function) -> str:
    """Return an overload that no function of the model has; a stranger's may have any name."""
    numbers = itertools.count(len(model.functions))
    names = (f"{function.overload}.graphs{number}" for number in numbers)
    taken = model.functions
    return next(n for n in names if (function.domain, function.name, n) not in taken)


def _parameters(function: ir.Function) -> Iterator[tuple[ir.Node, ir.Attr]]:
    """Yield the nodes of a function that refer to a graph which calls give, and the attributes."""
    for node in graphs.nodes(function):
        for attribute in node.attributes.data.values():
            if attribute.is_ref() and attribute.type in graphs.BODIES:
                yield node, attribute


def _given(call: ir.Node) -> dict[str, ir.Attr]:
    """Return the graphs that a call gives, by attribute."""
    attributes = call.attributes.data
    return {name: each for name, each in attributes.items() if each.type in graphs.BODIES}


def _with_graphs(function: ir.Function, call: ir.Node, overload: str) -> ir.Function:
    """Return a copy of a function with a call's graphs in it, and make the call one of it."""
    given = _given(call)
    for graph in (graph for _, graph in graphs.subgraphs(call)):
        for node in graphs.nodes(graph):
            if any(attribute.is_ref() for attribute in node.attributes.data.values()):
                raise NotSupported(
                    f"{graphs.label(call)} gives a graph whose {graphs.label(node)} refers to an "
                    "attribute of the function around it, which is not supported"
                )
    outer = dict.fromkeys(graphs.captures(call))
    copy = function.clone()
    copy.overload = overload
    inner = {value: ir.Value(name=value.name, type=value.type) for value in outer}
    for node, attribute in list(_parameters(copy)):
        if (graphs_given := given.get(attribute.ref_attr_name or "")) is None:
            del node.attributes[attribute.name]
        else:
            node.attributes[attribute.name] = _written_out(attribute.name, graphs_given, inner)
    for name in given:
        copy.attributes.pop(name, None)
        del call.attributes[name]
    _give_inputs(call, len(copy.inputs), list(outer))
    copy.inputs.extend(inner.values())
    call.overload = overload
    return copy


def _written_out(name: str, given: ir.Attr, inner: dict[ir.Value, ir.Value]) -> ir.Attr:
    """Return an attribute with copies of the given graphs that read inner values for outer ones."""
    one = given.type == ir.AttributeType.GRAPH
    copies = [
        graph.clone(allow_outer_scope_values=True)
        for graph in ([given.as_graph()] if one else given.as_graphs())
    ]
    for graph in copies:
        for node in graphs.nodes(graph):
            for position, value in enumerate(node.inputs):
                if value in inner:
                    node.replace_input_with(position, inner[value])
        for position, output in enumerate(graph.outputs):
            if output in inner:
                graph.outputs[position] = inner[output]
    return ir.Attr(name, given.type, copies[0] if one else copies)


def _give_inputs(call: ir.Node, position: int, values: list[ir.Value]) -> None:
    """Append inputs to a call from a position on; optional ones before it are left out."""
    if not values:
        return
    call.resize_inputs(position + len(values))
    for offset, value in enumerate(values):
        call.replace_input_with(position + offset, value)
