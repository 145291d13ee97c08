"""Cases that once failed, by what was wrong: each is to end well, or in a documented error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import onnx

from fuzz.drawing import Drawn
from fuzz.findings.graphs import GRAPHS
from fuzz.findings.inputs import INPUTS
from fuzz.findings.operators import OPERATORS

Row = tuple[onnx.ModelProto, dict[str, Any]]


def case(name: str, row: Row, number: int) -> Drawn:
    """Return the case of a row: the same inputs again and again, until they are replayed."""
    model, feeds = row
    return Drawn(number, name, "bytes", model.SerializeToString(), feeds, rounds=(feeds,) * 5)


ROWS: dict[str, Row] = {**OPERATORS, **INPUTS, **GRAPHS}
KEPT: list[Callable[[], Drawn]] = [
    functools.partial(case, name, row, 1 + 4 * i) for i, (name, row) in enumerate(ROWS.items())
]
