"""Models on Ray: ``Predictor`` for Ray Data, ``OnnxDeployment`` and others for Ray Serve.

Ray is imported when it is needed: the extra ``ray`` of tenonnx-ray installs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx_ray.data import Predictor
    from tenonnx_ray.fetching import fetched
    from tenonnx_ray.serving import OnnxDeployment, OnnxRepository

__all__ = ["OnnxDeployment", "OnnxRepository", "Predictor", "fetched"]

_HOMES = {
    "OnnxDeployment": "serving",
    "OnnxRepository": "serving",
    "Predictor": "data",
    "fetched": "fetching",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tenonnx_ray.{_HOMES[name]}"), name)
