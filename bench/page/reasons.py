"""Why rows are lost, as far as it is known: ``results/reasons.json``, by area and row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from bench.options import RESULTS
from bench.page.figures import Figure

Reasons: TypeAlias = Mapping[str, Mapping[str, str]]
# Designs that were tried for a row, with what came of them, by area and row.
Tried: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]


# Begins a name that stands for all rows of an area whose kind has what follows.
EVERY = "* "


def why(reasons: Reasons, area: str, figure: Figure) -> str:
    """Return why a row is lost; ``""`` if it is not known."""
    known = reasons.get(area, {})
    of_kind = (each for name, each in known.items() if matches(name, figure))
    return known.get(figure.name) or next(of_kind, "")


def matches(name: str, figure: Figure) -> bool:
    """Return whether a reason's name stands for a row."""
    if name.startswith(EVERY):
        return name.removeprefix(EVERY) in figure.kind
    return name == figure.name


def read(path: Path = RESULTS / "reasons.json") -> Reasons:
    """Return the reasons: a few words each."""
    found: Reasons = json.loads(path.read_text("utf-8"))
    return found


def read_tried(path: Path = RESULTS / "tried.json") -> Tried:
    """Return what was tried for rows: a line for each design."""
    found: Tried = json.loads(path.read_text("utf-8"))
    return found
