"""Files of models, inputs and outputs for ``tenonnx run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from models import model

X = np.random.default_rng(1).standard_normal((3, 16)).astype(np.float32)


def save(folder: Path, *arguments: Any, **options: Any) -> str:
    onnx.save(model(*arguments, **options), folder / "model.onnx")
    return "model.onnx"


def load(path: str) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path) as content:
        return dict(content)
