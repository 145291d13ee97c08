"""The provider of each node, and the reasons."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from tenonnx import graph as graphs
from tenonnx.by_name import cacheable
from tenonnx.errors import EPFail, InvalidGraph, MalformedGraph, UnknownOperator, page
from tenonnx.graph.validation import check_bodies, misfit
from tenonnx.graph.values import NodeInfo, node_info
from tenonnx.planning.units import Unit, Units
from tenonnx.process import interruption
from tenonnx.provider import Provider, Segment

if TYPE_CHECKING:
    import onnx_ir as ir

# The name of the runtime as the provider of control flow.
RUNTIME = "runtime"

MAX_LISTED = 20


@cacheable
class Assignment(NamedTuple):
    """One node's place: who runs it, and what the providers before that one said."""

    node: NodeInfo
    provider: str
    reasons: Mapping[str, str]


@cacheable
@dataclass(frozen=True)
class Placement:
    """The provider of each node, and the reasons.

    Attributes:
        assignments: Those of a model's nodes, those in subgraphs after the node that holds them.
        preferred: The name of the provider that is asked first.
    """

    assignments: tuple[Assignment, ...]
    preferred: str

    def __iter__(self) -> Iterator[Assignment]:
        """Yield every node's assignment."""
        return iter(self.assignments)

    def counts(self) -> dict[str, int]:
        """Return the number of nodes per provider."""
        return dict(Counter(assignment.provider for assignment in self))

    def elsewhere(self) -> list[Assignment]:
        """Return the nodes that their preferred provider declined, with its reasons."""
        return [assignment for assignment in self if assignment.reasons]

    def __str__(self) -> str:
        """Return one line of counts, then a line for every node not where it was wanted."""
        counts = ", ".join(f"{name} {n}" for name, n in sorted(self.counts().items()))
        lines = [f"{sum(self.counts().values())} nodes: {counts or 'none'}"]
        declined = self.elsewhere()
        for assignment in declined[:MAX_LISTED]:
            reasons = "; ".join(f"{name}: {why}" for name, why in assignment.reasons.items())
            lines.append(f"  {assignment.node.label} on {assignment.provider} ({reasons})")
        if len(declined) > MAX_LISTED:
            lines.append(f"  ... and {len(declined) - MAX_LISTED} more")
        return "\n".join(lines)


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
    bodies: Mapping[str, PlacedGraph]
    own: PlacedSegment | None = None


class PlacedGraph(NamedTuple):
    """A graph cut into pieces, in the order in which they run.

    Attributes:
        graph: The graph.
        items: The pieces.
        places: The provider's name of each node, and the reasons of those before it.
        preferred: The name of the provider that is asked first.
    """

    graph: ir.Graph
    items: tuple[PlacedSegment | PlacedControl, ...]
    places: tuple[tuple[ir.Node, str, Mapping[str, str]], ...]
    preferred: str

    def counts(self) -> Counter[str]:
        """Return the number of nodes per provider."""
        found = Counter(provider for _, provider, _ in self.places)
        for item in self.items:
            for body in item.bodies.values() if isinstance(item, PlacedControl) else ():
                found.update(body.counts())
        return found

    def described(self) -> Placement:
        """Return the placement as a plan has it."""
        return Placement(tuple(self.assignments()), self.preferred)

    def assignments(self) -> Iterator[Assignment]:
        """Yield every node's, those in subgraphs after the node that holds them."""
        bodies = {i.node: i.bodies for i in self.items if isinstance(i, PlacedControl)}
        for node, provider, reasons in self.places:
            yield Assignment(node_info(node), provider, reasons)
            for body in bodies.get(node, {}).values():
                yield from body.assignments()


def place(
    model: ir.Model, providers: Sequence[Provider], others: Sequence[Provider] = ()
) -> PlacedGraph:
    """Give every node to the first provider that supports it.

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
    from tenonnx.graph import functions

    # Nearly all models have only operators that a provider supports, so bodies are looked for when
    # placing has failed.
    try:
        return _place_graph(model.graph, providers)
    except _Unsupported:

        def supported(node: ir.Node) -> bool:
            return any(provider.supports(node) is True for provider in providers)

        # The body of a malformed node would fail with errors of nodes that the model does not have.
        for node in functions.unsupported(model, supported):
            if wrong := misfit(node):
                raise MalformedGraph(wrong) from None
        unsupported = functions.expand_unsupported(model, supported)
    if unsupported:
        raise _not_implemented(unsupported, providers, others)
    return _place_graph(model.graph, providers)


class _Unsupported(Exception):
    """No provider supports a node as it is."""


def _place_graph(graph: ir.Graph, providers: Sequence[Provider]) -> PlacedGraph:
    units, reasons = _assigned(graph, providers)
    places = [
        (node, provider.name if provider else RUNTIME, reasons[node])
        for node in graph
        for provider in (units.unit(node).provider,)
    ]
    items: list[PlacedSegment | PlacedControl] = []
    for (provider, holder, _), group in itertools.groupby(units, key=_segment_key):
        nodes = tuple(node for unit in group for node in unit.nodes)
        own = PlacedSegment(provider, Segment(nodes, _escaping(nodes))) if provider else None
        if holder is not None:
            items.append(_place_control(holder, providers, own))
        elif own is not None:
            items.append(own)
    return PlacedGraph(graph, tuple(items), tuple(places), providers[0].name)


def _assigned(
    graph: ir.Graph, providers: Sequence[Provider]
) -> tuple[Units, dict[ir.Node, dict[str, str]]]:
    """Return a graph's nodes with their providers, and why those before them declined.

    Raises:
        _Unsupported: A node has none.
    """
    units = Units(graph)
    reasons: dict[ir.Node, dict[str, str]] = {node: {} for node in graph}
    free = [node for node in reasons if not graphs.is_control_flow(node)]
    for provider in providers:
        interruption.check()
        verdicts = {node: _verdict(provider, node) for node in free}
        able = [node for node in free if verdicts[node] is True]
        plain = [node for node in able if not graphs.has_bodies(node)]
        groups = _claims(provider, plain)
        for node in able if groups is None else set(able) - set(plain):
            units.unit(node).provider = provider
        if groups is not None:
            verdicts.update(_join(units, provider, groups, plain))
        free = [node for node in free if units.unit(node).provider is None]
        for node in free:
            reasons[node][provider.name] = str(verdicts[node])
    if free:
        raise _Unsupported(graphs.label(free[0]))
    units.number()
    return units, reasons


def _join(
    units: Units, provider: Provider, groups: Iterable[Sequence[ir.Node]], able: Sequence[ir.Node]
) -> dict[ir.Node, str]:
    """Make units of a provider's groups; return why nodes that it supports are in none."""
    why, free = dict.fromkeys(able, "it claims no group with this node"), set(able)
    least = provider.min_group_nodes
    for group in groups:
        for part in units.convex(node for node in group if node in free):
            if len(part) < least:
                few = f"its group of {len(part)} is smaller than {least} nodes"
                why.update(dict.fromkeys(part, few))
                continue
            units.join(part, provider)
            free.difference_update(part)
    return {node: why[node] for node in free}


def _claims(provider: Provider, able: Sequence[ir.Node]) -> list[Sequence[ir.Node]] | None:
    """Return the groups that a provider claims.

    Raises:
        EPFail: It failed, or claims what is no node.
    """
    import onnx_ir as ir

    try:
        found = provider.claim(able)
        groups: list[Sequence[ir.Node]] | None = None
        if found is not None:
            groups = [list(group) for group in found]
    except Exception as error:  # a stranger's code may raise anything
        from tenonnx.planning.node_errors import place_in_plugin

        place = f" ({found_at})" if (found_at := place_in_plugin(error)) else ""
        said = f"{type(error).__name__}: {error}{place}"
        raise EPFail(f"{provider.name} failed when asked for groups of nodes: {said}") from error
    for node in (node for group in groups or () for node in group):
        if not isinstance(node, ir.Node):
            raise EPFail(f"{provider.name} claims {node!r}; expected groups of nodes")
    return groups


def _verdict(provider: Provider, node: ir.Node) -> Literal[True] | str:
    """Return what a provider says of a node.

    Raises:
        EPFail: It failed instead.
    """
    try:
        return provider.supports(node) or "it says no reason"  # False, None and "" decline, too
    except Exception as error:  # a stranger's code may raise anything
        from tenonnx.planning.node_errors import describe_failure

        said = describe_failure([node_info(node)], error)
        raise EPFail(f"{provider.name} failed when asked whether it supports {said}") from error


def _segment_key(unit: Unit) -> tuple[Provider | None, ir.Node | None, Unit | None]:
    """Return a key that differs for nodes of different segments: groups, and nodes with graphs."""
    (node, *_), alone = unit.nodes, unit.claimed
    holds = unit.provider is None or any(graphs.subgraphs(node))
    return unit.provider, node if holds else None, unit if alone else None


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
    import onnx

    unknown = [name for name in operators if not onnx.defs.has(name)]
    if unknown:
        known = (schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain)
        import difflib

        close = difflib.get_close_matches(unknown[0], known, n=1)
        guess = f"did you mean {close[0]}?" if close else "does the node lack its domain?"
        return f"{unknown[0]} is no operator of ai.onnx; {guess}"
    return "check the model's opset_import; `tenonnx providers` lists who is there"
