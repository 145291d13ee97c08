"""Connected nodes that compute one value and nothing else that anybody reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenonnx_cpu.fuse import Scope

if TYPE_CHECKING:
    import onnx_ir as ir

MOST = 256
"""Nodes that a region has at most."""

NEAREST = 32
"""Ends that are tried where more than a region's nodes go on from one."""


def find_region(
    start: ir.Node,
    scope: Scope,
    member: Callable[[ir.Node], bool],
    fits: Callable[[list[ir.Node]], bool],
) -> list[ir.Node] | None:
    """Returns the largest region found around a node, each of its nodes after those it reads.

    Args:
        start: A node of the region.
        scope: Where nodes may be taken from.
        member: Says whether a node may be part of a region; all have one output.
        fits: Says whether a region will do.
    """
    known: dict[ir.Node, bool] = {}

    def free(node: ir.Node | None) -> bool:
        if node is None:
            return False
        if node not in known:
            known[node] = scope.has(node) and member(node)
        return known[node]

    ends = _downstream(start, free)
    # Where there is no end of nodes, every try is dear, and so would be all of them for each node.
    for last in reversed(ends if len(ends) < MOST else ends[:NEAREST]):
        region = _upstream(last, scope, free)
        if start in region and len(region) > 1 and fits(region):
            return region
    return None


def inputs_of(region: list[ir.Node]) -> tuple[ir.Value, ...]:
    """Returns what a region reads, each value once."""
    made = {node.outputs[0] for node in region}
    read = (value for node in region for value in node.inputs)
    return tuple(dict.fromkeys(v for v in read if v is not None and v not in made))


def _downstream(start: ir.Node, free: Callable[[ir.Node | None], bool]) -> list[ir.Node]:
    """Returns a node and those that depend on it, the nearest first."""
    found = {start: None} if free(start) else {}
    for node in (queue := list(found)):
        for use in node.outputs[0].uses():
            if len(queue) < MOST and use.node not in found and free(use.node):
                found[use.node] = None
                queue.append(use.node)
    return queue


def _upstream(last: ir.Node, scope: Scope, free: Callable[[ir.Node | None], bool]) -> list[ir.Node]:
    """Returns a node and those before it that nobody else needs, in an order they can run in."""
    order = _postorder(last, free)
    region = set(order)
    # A node whose value is read elsewhere stays outside; then so may what it alone read.
    for node in reversed(order):
        value = node.outputs[0]
        inside = all(use.node in region for use in value.uses())
        if node is not last and (scope.escapes(value) or not inside):
            region.discard(node)
    return [node for node in order if node in region]


def _postorder(last: ir.Node, free: Callable[[ir.Node | None], bool]) -> list[ir.Node]:
    order: dict[ir.Node, None] = {}
    stack = [(last, False)]
    while stack and len(order) < MOST:
        node, ready = stack.pop()
        if ready:
            order[node] = None
        elif node not in order:
            stack.append((node, True))
            for value in node.inputs:
                producer = None if value is None else value.producer()
                if free(producer) and producer not in order:
                    stack.append((producer, False))  # type: ignore[arg-type]  # None is not free
    return list(order) if last in order else [last]
