"""The provider of each node, and the reasons."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from tenonnx import functions, interruption
from tenonnx import graph as graphs
from tenonnx.errors import EPFail, InvalidGraph, MalformedGraph, UnknownOperator, page
from tenonnx.lazy_modules import onnx
from tenonnx.lazy_modules import onnx_ir as ir
from tenonnx.provider import Provider, Segment
from tenonnx.records import NamedTuple, record
from tenonnx.wellformed import check_bodies, misfit

RUNTIME = "runtime"
"""The name of the runtime as the provider of control flow."""

MAX_LISTED = 20


class Assignment(NamedTuple):
    """One node's place: who runs it, and what the providers before that one said."""

    node: ir.Node
    provider: str
    reasons: Mapping[str, str]


class PlacedSegment(NamedTuple):
    """Nodes that one provider compiles together."""

    provider: Provider
    segment: Segment


class PlacedControl(NamedTuple):
    """A node with graph attributes, and their placements.

    Attributes:
        node: The node.
        bodies: By attribute name.
        own: The node alone, for the provider that runs it; ``None`` when the runtime does.
    """

    node: ir.Node
    bodies: Mapping[str, Placement]
    own: PlacedSegment | None = None


@record
class Placement:
    """A graph cut into pieces, in the order in which they run.

    Attributes:
        model: The graph's model, with which its weights go; ``None`` of a graph inside another.
    """

    graph: ir.Graph
    items: tuple[PlacedSegment | PlacedControl, ...]
    assignments: tuple[Assignment, ...]
    preferred: str
    model: ir.Model | None = None

    def __iter__(self) -> Iterator[Assignment]:
        """Yields every node's assignment, those in subgraphs after the node that holds them."""
        bodies = {i.node: i.bodies for i in self.items if isinstance(i, PlacedControl)}
        for assignment in self.assignments:
            yield assignment
            for body in bodies.get(assignment.node, {}).values():
                yield from body

    def counts(self) -> dict[str, int]:
        """Returns the number of nodes per provider."""
        return dict(Counter(assignment.provider for assignment in self))

    def elsewhere(self) -> list[Assignment]:
        """Returns the nodes that their preferred provider declined, with its reasons."""
        return [assignment for assignment in self if assignment.reasons]

    def __str__(self) -> str:
        """Returns one line of counts, then a line for every node not where it was wanted."""
        counts = ", ".join(f"{name} {n}" for name, n in sorted(self.counts().items()))
        lines = [f"{sum(self.counts().values())} nodes: {counts or 'none'}"]
        declined = self.elsewhere()
        for assignment in declined[:MAX_LISTED]:
            reasons = "; ".join(f"{name}: {why}" for name, why in assignment.reasons.items())
            lines.append(f"  {graphs.label(assignment.node)} on {assignment.provider} ({reasons})")
        if len(declined) > MAX_LISTED:
            lines.append(f"  ... and {len(declined) - MAX_LISTED} more")
        return "\n".join(lines)


def place(
    model: ir.Model, providers: Sequence[Provider], others: Sequence[Provider] = ()
) -> Placement:
    """Gives every node to the first provider that supports it.

    Operators that none supports are replaced in the model by the body that their schema gives
    them, where it gives one.

    Args:
        model: Sorted, with functions inlined and versions resolved.
        providers: In order of preference.
        others: Usable providers that were not asked for; named in the error if they could help.

    Raises:
        UnknownOperator: Some nodes have no provider; the message lists them.
        MalformedGraph: One of them differs from its operator's schema.
    """
    try:
        return _place_graph(model.graph, providers, model)
    except _Unsupported:

        def supported(node: ir.Node) -> bool:
            return any(provider.supports(node) is True for provider in providers)

        for node in functions.unsupported(model, supported):
            if wrong := misfit(node):
                raise MalformedGraph(wrong) from None
        unsupported = functions.expand_unsupported(model, supported)
    if unsupported:
        raise _not_implemented(unsupported, providers, others)
    return _place_graph(model.graph, providers, model)


class _Unsupported(Exception):
    """No provider supports a node as it is."""


def _place_graph(
    graph: ir.Graph, providers: Sequence[Provider], model: ir.Model | None = None
) -> Placement:
    assignments: list[Assignment] = []
    chosen: list[tuple[Provider | None, ir.Node]] = []
    for node in graph:
        provider, reasons = _choose(node, providers)
        assignments.append(Assignment(node, provider.name if provider else RUNTIME, reasons))
        chosen.append((provider, node))
    items: list[PlacedSegment | PlacedControl] = []
    for (provider, holder), group in itertools.groupby(chosen, key=_provider_and_holder):
        nodes = tuple(node for _, node in group)
        own = PlacedSegment(provider, Segment(nodes, _escaping(nodes))) if provider else None
        if holder is not None:
            items.append(_place_control(holder, providers, own))
        elif own is not None:
            items.append(own)
    return Placement(graph, tuple(items), tuple(assignments), providers[0].name, model)


def _choose(node: ir.Node, providers: Sequence[Provider]) -> tuple[Provider | None, dict[str, str]]:
    interruption.check()
    if graphs.is_control_flow(node):
        return None, {}
    reasons: dict[str, str] = {}
    for provider in providers:
        verdict = _verdict(provider, node)
        if verdict is True:
            return provider, reasons
        reasons[provider.name] = verdict
    raise _Unsupported(graphs.label(node))


def _verdict(provider: Provider, node: ir.Node) -> Literal[True] | str:
    """Returns what a provider says of a node.

    Raises:
        EPFail: It failed instead.
    """
    try:
        return provider.supports(node) or "it says no reason"
    except Exception as error:  # a stranger's code may raise anything
        raise EPFail(
            f"{provider.name} failed when asked whether it supports {graphs.label(node)}: {error!r}"
        ) from error


def _provider_and_holder(
    pair: tuple[Provider | None, ir.Node],
) -> tuple[Provider | None, ir.Node | None]:
    """Tells apart what cannot be one segment; a node that holds graphs is alone."""
    provider, node = pair
    return provider, node if provider is None or any(graphs.subgraphs(node)) else None


def _place_control(
    node: ir.Node, providers: Sequence[Provider], own: PlacedSegment | None
) -> PlacedControl:
    if own is None:
        check_bodies(node)
    elif wrong := misfit(node):
        raise InvalidGraph(wrong)
    bodies = {name: _place_graph(graph, providers) for name, graph in graphs.subgraphs(node)}
    return PlacedControl(node, bodies, own)


def _escaping(nodes: tuple[ir.Node, ...]) -> frozenset[ir.Value]:
    inside = set(nodes)
    return frozenset(
        value
        for node in nodes
        for value in node.outputs
        if value.is_graph_output() or any(user not in inside for user in value.consumers())
    )


def _not_implemented(
    nodes: Sequence[ir.Node], providers: Sequence[Provider], others: Sequence[Provider]
) -> UnknownOperator:
    lines = []
    for node in nodes[:MAX_LISTED]:
        reasons = "; ".join(f"{p.name}: {_verdict(p, node)}" for p in providers)
        lines.append(f"  {graphs.label(node)}: {reasons}")
    if len(nodes) > MAX_LISTED:
        lines.append(f"  ... and {len(nodes) - MAX_LISTED} more")
    who = f"{len(nodes)} nodes have no provider that runs them"
    who = who if len(nodes) > 1 else "a node has no provider that runs it"
    hint = _remedy(nodes, providers, others)
    return UnknownOperator(f"{who}:\n" + "\n".join(lines), hint=hint)


def _remedy(
    nodes: Sequence[ir.Node], providers: Sequence[Provider], others: Sequence[Provider]
) -> str:
    able = [p.name for p in others if all(p.supports(node) is True for node in nodes)]
    if able:
        return f"{' or '.join(able)} supports them: add it to providers=[...]"
    if all(any(p.has_operator(node) for p in providers) for node in nodes):
        return (
            "the operator is known: change the node as the reason says, or name a provider "
            "that takes it as it is"
        )
    # Names are bytes if they are no UTF-8.
    domains = sorted({str(node.domain) for node in nodes} - {""})
    if domains:
        return (
            f"install a plug-in that has the operators of {', '.join(domains)}, or write one: "
            f"{page('recipes/write-an-operator-in-a-script')}; the command line loads a file with "
            "`tenonnx --plugin FILE.py ...`"
        )
    operators = (str(node.op_type) for node in nodes)
    unknown = [name for name in operators if not onnx.defs.has(name)]
    if unknown:
        known = (schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain)
        import difflib  # for mistakes only

        close = difflib.get_close_matches(unknown[0], known, n=1)
        guess = f"did you mean {close[0]}?" if close else "does the node lack its domain?"
        return f"{unknown[0]} is no operator of ai.onnx; {guess}"
    return "check the model's opset_import; `tenonnx providers` lists who is there"
