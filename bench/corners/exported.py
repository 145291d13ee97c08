"""Models of a few channels, as torch exports them: the tests' own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from bench.cpu.table import Row
from bench.models import Built

EXPORTS = Path(__file__).parents[2] / "tests" / "exports"


def exported(name: str) -> Row:
    """Return the row of a model, in which calls take more time than what they compute."""

    def build() -> Built:
        proto = onnx.load(EXPORTS / f"{name}.onnx")
        with np.load(EXPORTS / f"{name}.npz") as arrays:
            return proto, {value.name: arrays[f"in:{value.name}"] for value in proto.graph.input}

    return Row(f"tiny {name.removesuffix('-dynamo')}, as torch exports it", build, build)
