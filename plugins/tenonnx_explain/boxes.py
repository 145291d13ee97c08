"""What of a placed model is drawn: a box per node, or per chain of nodes where there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MANY = 400
"""Nodes from which chains are drawn as one box."""

MOST = 1500
"""Boxes that are drawn; a page with more answers slowly."""


@dataclass
class Box:
    """What is drawn as one.

    Attributes:
        label: What it says.
        provider: Who runs it; ``input`` or ``output`` for the model's own.
        rows: The nodes it stands for, as positions in the report.
    """

    label: str
    provider: str
    rows: list[int] = field(default_factory=list)


@dataclass
class Boxes:
    """What is drawn of a model.

    Attributes:
        boxes: The boxes.
        edges: From which box to which.
        left_out: Nodes that are not drawn.
    """

    boxes: list[Box]
    edges: list[tuple[int, int]]
    left_out: int


def boxes_of(report: dict[str, Any]) -> Boxes:
    """Returns the boxes of a report's nodes, with the model's inputs and outputs."""
    rows: Sequence[dict[str, Any]] = report["nodes"]
    chains = _chains(rows) if len(rows) > MANY else [[row] for row in range(len(rows))]
    left_out = sum(len(chain) for chain in chains[MOST:])
    chains = chains[:MOST]
    boxes = [Box(_label(rows, chain), rows[chain[0]]["provider"], chain) for chain in chains]
    place = {row: box for box, chain in enumerate(chains) for row in chain}
    edges = {
        (place[before], box)
        for row, box in place.items()
        for before in rows[row]["after"]
        if before in place and place[before] != box
    }
    for kind, names in (("input", report["inputs"]), ("output", report["outputs"])):
        ends = "inputs" if kind == "input" else "outputs"
        at: dict[str, set[int]] = {}
        for row, box in place.items():
            for name in rows[row][ends]:
                at.setdefault(name, set()).add(box)
        for name in names:
            touched = at.get(name, set())
            if touched or not left_out:
                boxes.append(Box(name, kind))
                new = len(boxes) - 1
                edges |= {(new, box) if kind == "input" else (box, new) for box in touched}
    return Boxes(boxes, sorted(edges), left_out)


def _chains(rows: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Joins nodes of one provider of which each is read by the next one alone."""
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
