"""Connected nodes that compute one value and nothing else that anybody reads."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tenonnx_cpu.fuse import Scope

if TYPE_CHECKING:
    import onnx_ir as ir

# Nodes that a subgraph has at most.
MAX_SUBGRAPH_NODES = 256

# Ends in a row that need not fit before no further ones are tried.
MAX_MISFITS = 16


def find_subgraph(
    start: ir.Node,
    scope: Scope,
    member: Callable[[ir.Node], bool],
    fits: Callable[[Sequence[ir.Node]], bool],
    hopeless: Callable[[Iterable[ir.Value]], bool],
) -> list[ir.Node] | None:
    """Return the largest subgraph found around a node, each of its nodes after those it reads.

    Args:
        start: A node of the subgraph.
        scope: Where nodes may be taken from.
        member: Returns whether a node may be part of a subgraph; all have one output.
        fits: Returns whether a subgraph will do.
        hopeless: Says that none will do which reads some values from outside.
    """
    known: dict[ir.Node, bool] = {}

    def free(node: ir.Node | None) -> bool:
        if node is None:
            return False
        if node not in known:
            known[node] = scope.has(node) and member(node)
        return known[node]

    def will_do(subgraph: list[ir.Node]) -> bool:
        return start in subgraph and len(subgraph) > 1 and fits(subgraph)

    if _ordered(start, free) is None:  # then all that depend on it depend on too many
        return None
    ends = _meetings(start, scope, free, hopeless)
    if not ends:
        return None
    largest = _upstream(ends.pop(), scope, free)
    if largest is not None and will_do(largest):
        return largest
    # There may be no end of nodes, and each try is dear: a row of misfits is the end of trying.
    largest, misfits = None, 0
    for last in ends:
        if misfits == MAX_MISFITS or (subgraph := _upstream(last, scope, free)) is None:
            break  # what depends on this one depends on as many
        largest, misfits = (subgraph, 0) if will_do(subgraph) else (largest, misfits + 1)
    return largest


def _meetings(
    start: ir.Node,
    scope: Scope,
    free: Callable[[ir.Node | None], bool],
    hopeless: Callable[[Iterable[ir.Value]], bool],
) -> list[ir.Node]:
    """Return the nodes through which all goes that is made of a node's value, the nearest first.

    A subgraph around a node ends in one of them, for nobody else reads what is inside; and what is
    between them is all inside.
    """
    met: list[ir.Node] = []
    outside: dict[ir.Value, None] = {}
    seen = {start} if free(start) else set()
    queue = [(scope.position(node), node) for node in seen]
    while queue and len(seen) < MAX_SUBGRAPH_NODES:
        _, node = heapq.heappop(queue)
        read = [v for v in node.inputs if v is not None and not free(v.producer())]
        if not outside.keys() >= set(read):
            outside.update(dict.fromkeys(read))
            if hopeless(outside):
                break
        if not queue:
            met.append(node)
        value = node.outputs[0]
        readers = {use.node for use in value.uses()}
        if scope.escapes(value) or not all(map(free, readers)):
            break
        for reader in readers - seen:
            seen.add(reader)
            heapq.heappush(queue, (scope.position(reader), reader))
    return met


def _upstream(
    last: ir.Node, scope: Scope, free: Callable[[ir.Node | None], bool]
) -> list[ir.Node] | None:
    """Return a node and those before it that nobody else needs, in an order they can run in.

    ``None`` if it depends on too many.
    """
    order = _ordered(last, free)
    if order is None:
        return None
    subgraph = set(order)
    # A node whose value is read elsewhere stays outside; then so may what it alone read.
    for node in reversed(order):
        value = node.outputs[0]
        inside = all(use.node in subgraph for use in value.uses())
        if node is not last and (scope.escapes(value) or not inside):
            subgraph.discard(node)
    return [node for node in order if node in subgraph]


def upstream(last: ir.Node, free: Callable[[ir.Node | None], bool]) -> list[ir.Node]:
    """Return a node and the free ones that it depends on, in an order they can run in.

    The node alone, if these are too many.
    """
    return _ordered(last, free) or [last]


def _ordered(last: ir.Node, free: Callable[[ir.Node | None], bool]) -> list[ir.Node] | None:
    """Return what ``upstream`` does; ``None`` if these are too many."""
    order: dict[ir.Node, None] = {}
    entered: set[ir.Node] = set()
    stack = [(last, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order[node] = None
        elif node not in entered:
            if len(entered) == MAX_SUBGRAPH_NODES:
                return None
            entered.add(node)
            stack.append((node, True))
            for value in node.inputs:
                producer = None if value is None else value.producer()
                if free(producer) and producer not in entered:
                    stack.append((producer, False))  # type: ignore[arg-type]  # None is not free
    return list(order)
