"""Groups of nodes that a provider claims, as units of an order in which a graph can run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenonnx import graph as graphs

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.provider import Provider


@dataclass(eq=False)
class Unit:
    """Nodes that run one after another.

    Attributes:
        nodes: In an order in which they can run.
        provider: Who runs them; ``None`` is the runtime.
        claimed: They are a group of the provider's, which is a segment of its own.
    """

    nodes: list[ir.Node]
    provider: Provider | None = None
    claimed: bool = False


class Units:
    """A graph's nodes in an order in which they can run, some of them in groups.

    Args:
        nodes: In an order in which they can run; each begins as a unit of its own.
    """

    def __init__(self, nodes: Iterable[ir.Node]) -> None:
        self.order = [Unit([node]) for node in nodes]
        self.number()

    def number(self) -> None:
        """Drop empty units, and number the others."""
        self.order = [unit for unit in self.order if unit.nodes]
        places = enumerate(self.order)
        self._position = {node: number for number, unit in places for node in unit.nodes}

    def __iter__(self) -> Iterator[Unit]:
        """Yield the units in order."""
        return iter(self.order)

    def unit(self, node: ir.Node) -> Unit:
        """Return the unit that a node is in."""
        return self.order[self._position[node]]

    def convex(self, group: Iterable[ir.Node]) -> list[list[ir.Node]]:
        """Return a group in parts, none of which waits for a node that waits for the part.

        Args:
            group: Nodes that are units of their own.
        """
        places = sorted({self._position[node] for node in group})
        if not places:
            return []
        inside = {self.order[place].nodes[0] for place in places}
        parts: dict[int, list[ir.Node]] = {}
        for unit, depth in self._depths(places[0], places[-1], inside):
            if unit.nodes[0] in inside:
                parts.setdefault(depth, []).append(unit.nodes[0])
        return list(parts.values())

    def join(self, part: Sequence[ir.Node], provider: Provider) -> None:
        """Make a part that ``convex`` returned a provider's unit, and move what is between it."""
        inside = set(part)
        places = sorted(self._position[node] for node in part)
        first, last = places[0], places[-1]
        joined = Unit(list(part), provider, claimed=True)
        before: list[Unit] = []
        after: list[Unit] = []
        for unit, depth in self._depths(first, last, inside):
            if unit.nodes[0] not in inside:
                (before if depth < 0 else after).append(unit)
        window = [*before, joined, *after]
        # Positions beyond the window stay: what was joined leaves empty units.
        window += [Unit([]) for _ in range(last + 1 - first - len(window))]
        self.order[first : last + 1] = window
        for number, unit in enumerate(window, first):
            self._position.update(dict.fromkeys(unit.nodes, number))

    def _depths(self, first: int, last: int, inside: set[ir.Node]) -> Iterator[tuple[Unit, int]]:
        """Yield the units of a window with how often a path from the group to each comes back.

        A unit that no node of the group leads to has -1. One of the group has the number of times
        that a path leaves the group and comes back; one outside has that of the group before it.
        """
        depths: dict[ir.Node, int] = {}
        for unit in self.order[first : last + 1]:
            if not unit.nodes:
                continue
            is_inside, depth = unit.nodes[0] in inside, -1
            for before in _makers(unit):
                found = depths.get(before, -1)
                if found >= 0:
                    depth = max(depth, found + (is_inside and before not in inside))
            if is_inside:
                depth = max(depth, 0)
            depths.update(dict.fromkeys(unit.nodes, depth))
            yield unit, depth


def _makers(unit: Unit) -> Iterator[ir.Node]:
    """Yield the nodes that make what a unit reads, those of other graphs among them."""
    for node in unit.nodes:
        for value in graphs.inputs(node):
            if (maker := value.producer()) is not None:
                yield maker
