"""Inputs that are not what a model takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from fuzz.findings.operators import one

X, WORDS = np.ones(2, np.float32), np.array(["a", "b"], object)
NUMBERS, TEXT = one("Neg", {"x": X})[0], one("Identity", {"x": WORDS})[0]

INPUTS: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
    "nothing in a list": (NUMBERS, {"x": [None]}),
    "lists of unlike lengths": (NUMBERS, {"x": [[1.0], [2.0, 3.0]]}),
    "words in lists of unlike lengths": (TEXT, {"x": [["a"], ["b", "c"]]}),
    "an integer beyond all": (NUMBERS, {"x": [1 << 1100]}),
}
