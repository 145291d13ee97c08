"""The boxes of a drawn model: one per node, or per chain of nodes in a large model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# From this many nodes on, a chain of nodes is one box.
MIN_CHAINED_NODES = 400

# A page with more boxes is slow.
MAX_BOXES = 1500


@dataclass
class Box:
    """A box of the drawing.

    Attributes:
        label: Its text.
        provider: The provider that runs it; ``input`` or ``output`` for the model's own.
        rows: The nodes it stands for, as positions in the report.
    """

    label: str
    provider: str
    rows: list[int] = field(default_factory=list)


@dataclass
class Boxes:
    """The drawing of a model.

    Attributes:
        boxes: The boxes.
        edges: By pair of boxes, the types of the values between them.
        left_out: Nodes that are not drawn.
    """

    boxes: list[Box]
    edges: dict[tuple[int, int], list[str]]
    left_out: int


def boxes_of(report: dict[str, Any]) -> Boxes:
    """Return the boxes of a report's nodes, with the model's inputs and outputs."""
    rows: Sequence[dict[str, Any]] = report["nodes"]
    chains = _chains(rows) if len(rows) > MIN_CHAINED_NODES else [[row] for row in range(len(rows))]
    left_out = sum(len(chain) for chain in chains[MAX_BOXES:])
    chains = chains[:MAX_BOXES]
    boxes = [Box(_label(rows, chain), rows[chain[0]]["provider"], chain) for chain in chains]
    place = {row: box for box, chain in enumerate(chains) for row in chain}
    edges: dict[tuple[int, int], list[str]] = {}
    for row, box in place.items():
        for before in rows[row]["after"]:
            if before in place and place[before] != box:
                made = rows[before]["types"].items()
                types = [kind for name, kind in made if name in rows[row]["inputs"]]
                _add(edges, (place[before], box), types)
    for kind, values in (("input", report["inputs"]), ("output", report["outputs"])):
        ends = "inputs" if kind == "input" else "outputs"
        at: dict[str, set[int]] = {}
        for row, box in place.items():
            for name in rows[row][ends]:
                at.setdefault(name, set()).add(box)
        for name, type_ in values.items():
            touched = at.get(name, set())
            if touched or not left_out:
                boxes.append(Box(name, kind))
                new = len(boxes) - 1
                for box in touched:
                    _add(edges, (new, box) if kind == "input" else (box, new), [type_])
    return Boxes(boxes, dict(sorted(edges.items())), left_out)


def _add(edges: dict[tuple[int, int], list[str]], edge: tuple[int, int], types: list[str]) -> None:
    """Add an edge, and those types of its values that it lacks."""
    known = edges.setdefault(edge, [])
    known += [kind for kind in types if kind not in known]


def shapes(types: Sequence[str]) -> str:
    """Return the shapes in types, in short: ``batch×3×224``, ``scalar``; nothing if unknown."""
    found = [kind.partition("[")[2].removesuffix("]") for kind in types if "[" in kind]
    words = ["×".join(shape.split(", ")) if shape else "scalar" for shape in found]
    return ", ".join(dict.fromkeys(words))


def _chains(rows: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Join consecutive nodes of one provider, if each output has one reader."""
    readers: dict[int, list[int]] = {}
    for row, node in enumerate(rows):
        for before in node["after"]:
            readers.setdefault(before, []).append(row)
    chain_of: dict[int, list[int]] = {}
    chains: list[list[int]] = []
    for row, node in enumerate(rows):
        before = node["after"]
        joins = (
            len(before) == 1
            and before[0] in chain_of
            and readers[before[0]] == [row]
            and rows[before[0]]["provider"] == node["provider"]
        )
        chain = chain_of[before[0]] if joins else []
        if not joins:
            chains.append(chain)
        chain.append(row)
        chain_of[row] = chain
    return chains


def _label(rows: Sequence[dict[str, Any]], chain: Sequence[int]) -> str:
    first = str(rows[chain[0]]["operator"])
    if len(chain) == 1:
        return first
    return f"{first} … {rows[chain[-1]]['operator']} ({len(chain)})"
