"""A drawing of a graph in layers: every edge leads down, few of them cross (Sugiyama, 1981)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

# The gap between neighbors in a layer.
BOX_GAP = 14.0

BOX_HEIGHT = 26.0
# The gap between layers, for edges.
LAYER_GAP = 34.0

# An edge across more layers is a straight line instead of a route around boxes.
MAX_EDGE_LAYERS = 40

ORDERING_SWEEPS = 12


@dataclass
class Drawing:
    """The layout of a drawing.

    Attributes:
        places: The center of every box.
        width: The drawing's width.
        height: The drawing's height.
        routes: By edge, its points between the centers of its boxes.
    """

    places: list[tuple[float, float]]
    width: float
    height: float
    routes: dict[tuple[int, int], list[tuple[float, float]]] = field(default_factory=dict)


def draw(widths: Sequence[float], edges: Iterable[tuple[int, int]]) -> Drawing:
    """Return the layout of boxes.

    Args:
        widths: The boxes' widths.
        edges: Pairs of boxes; edges that close a cycle are drawn but do not affect the layout.
    """
    edges = sorted(set(edges))
    layer = _layers(len(widths), edges)
    sizes = list(widths)
    ways: dict[tuple[int, int], list[int]] = {}
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for start, end in edges:
        span = layer[end] - layer[start]
        between = range(
            len(sizes), len(sizes) + span - 1 if 1 < span <= MAX_EDGE_LAYERS else len(sizes)
        )
        # An edge over several layers passes through a narrow box in each, so that the order of
        # boxes within a layer makes room for it.
        sizes += [2.0] * len(between)
        layer += [layer[start] + step for step in range(1, len(between) + 1)]
        ways[start, end] = list(between)
        if 0 < span <= MAX_EDGE_LAYERS:
            path = [start, *between, end]
            for one, other in pairwise(path):
                below.setdefault(one, []).append(other)
                above.setdefault(other, []).append(one)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for box, row in enumerate(layer):
        rows[row].append(box)
    x = _arrange(rows, sizes, above, below)
    y = [row * (BOX_HEIGHT + LAYER_GAP) + BOX_HEIGHT for row in layer]
    left = min((x[box] - sizes[box] / 2 for box in range(len(sizes))), default=0) - BOX_GAP
    places = [(x[box] - left, y[box]) for box in range(len(sizes))]
    width = max((place[0] + size / 2 for place, size in zip(places, sizes, strict=True)), default=0)
    routes = {edge: [places[box] for box in way] for edge, way in ways.items()}
    return Drawing(places[: len(widths)], width + BOX_GAP, max(y, default=0) + BOX_HEIGHT, routes)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return each box's layer: below its inputs; sources are just above their first reader."""
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for start, end in edges:
        after[start].append(end)
        missing[end] += 1
    sources = [box for box in range(count) if not missing[box]]
    layer = [0] * count
    queue = list(sources)
    for box in queue:
        for other in after[box]:
            layer[other] = max(layer[other], layer[box] + 1)
            missing[other] -= 1
            if not missing[other]:
                queue.append(other)
    for box in sources:
        layer[box] = max(0, min((layer[other] for other in after[box]), default=1) - 1)
    return layer


def _arrange(
    rows: list[list[int]],
    sizes: Sequence[float],
    above: dict[int, list[int]],
    below: dict[int, list[int]],
) -> list[float]:
    """Order every layer by the mean position of its boxes' neighbors; return these means."""
    x = [0.0] * len(sizes)
    for row in rows:
        for place, box in enumerate(row):
            x[box] = place * 100.0
    for sweep in range(ORDERING_SWEEPS):
        down = sweep % 2 == 0
        near, ordered = (above, rows) if down else (below, rows[::-1])
        for row in ordered:
            wanted = {}
            for box in row:
                others = near.get(box) or (below if down else above).get(box) or [box]
                wanted[box] = sum(x[other] for other in others) / len(others)
            row.sort(key=lambda box: (wanted[box], x[box]))
            _spread(row, sizes, wanted, x)
    return x


def _spread(
    row: Sequence[int], sizes: Sequence[float], wanted: dict[int, float], x: list[float]
) -> None:
    """Place the boxes of a layer side by side, as near as possible to their wanted positions.

    Least squares under a minimal distance is isotonic regression: neighbors that are too near
    become one block, placed at the mean of its members' wanted positions.
    """
    offset, offsets = 0.0, []
    for place, box in enumerate(row):
        if place:
            offset += (sizes[row[place - 1]] + sizes[box]) / 2 + BOX_GAP
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []
    for box, own in zip(row, offsets, strict=True):
        total, count = wanted[box] - own, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    place = 0
    for total, count in blocks:
        for _ in range(count):
            x[row[place]] = total / count + offsets[place]
            place += 1
