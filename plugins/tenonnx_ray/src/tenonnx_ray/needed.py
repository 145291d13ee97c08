"""Libraries that the extra ``ray`` of tenonnx-ray installs."""

from __future__ import annotations

import importlib
from typing import Any

EXTRA = "pip install 'tenonnx-ray[ray]'"


def needed(module: str) -> Any:
    """Return a module of Ray, or of a library beside it.

    Raises:
        ModuleNotFoundError: It is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = module.split(".")[0]
        if (error.name or "").split(".")[0] not in {library, "starlette", "fastapi"}:
            raise
        raise ModuleNotFoundError(
            f"{module} is not installed completely ({error}): {EXTRA}", name=error.name
        ) from error
