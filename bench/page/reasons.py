"""Why rows are lost, as far as it is known: ``results/reasons.json``, by area and row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from bench.options import RESULTS

Reasons: TypeAlias = Mapping[str, Mapping[str, str]]


def read(path: Path = RESULTS / "reasons.json") -> Reasons:
    """Returns the reasons: a few words each."""
    found: Reasons = json.loads(path.read_text("utf-8"))
    return found
