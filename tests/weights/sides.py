"""Side files of a test: written, listed and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx.weights.registry import SIDE_FILE_BYTES
from tenonnx.weights.sidefile import SideFiles
from tenonnx.weights.storage import stored_as

FLOAT = ir.DataType.FLOAT
COUNT = SIDE_FILE_BYTES // 4


def ramp(out: Any) -> None:
    out.reshape(-1)[:] = np.arange(out.size)


def write(files: SideFiles, key: str = "key", count: int = COUNT) -> Any:
    return files.write(key, f"name of {key}", FLOAT, (count,), ramp)


def names(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir())


def content(found: Any) -> Any:
    array = np.frombuffer(found.mapping.buffer, np.uint8)
    return array.view(stored_as(found.dtype)[0]).reshape(found.shape)
