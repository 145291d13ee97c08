"""Writes ``cupy_names.json``: what cupy has of numpy's names, for where there is no cupy.

``python tests/cuda/record_cupy.py`` with cupy installed; it needs no device.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np

TARGET = Path(__file__).with_name("cupy_names.json")
MODULES = ("", "fft", "linalg", "random", "lib.stride_tricks")


def describe(thing: Any, counterpart: Any) -> Any:
    """Types of a ufunc, parameters of a function; ``None`` for what is handed through."""
    if isinstance(counterpart, np.ufunc):
        return {"types": getattr(thing, "types", None) or []}
    if inspect.isclass(counterpart) or not callable(counterpart):
        return None
    try:
        return {"parameters": list(inspect.signature(thing).parameters)}
    except (TypeError, ValueError):
        return {"parameters": ["*"]}


def record() -> dict[str, Any]:
    import cupy

    found: dict[str, Any] = {"cupy": cupy.__version__, "array": [], "names": {}}
    found["array"] = sorted(n for n in dir(cupy.ndarray) if hasattr(np.ndarray, n))
    for module in MODULES:
        theirs, ours = cupy, np
        for part in filter(None, module.split(".")):
            theirs, ours = getattr(theirs, part), getattr(ours, part)
        found["names"][module] = {
            name: describe(getattr(theirs, name), getattr(ours, name))
            for name in sorted(dir(ours))
            if not name.startswith("_") and hasattr(theirs, name)
        }
    return found


if __name__ == "__main__":
    TARGET.write_text(json.dumps(record(), indent=0) + "\n")
