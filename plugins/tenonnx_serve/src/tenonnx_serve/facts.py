"""A server's and its models' metadata, in the protocol's form."""

from __future__ import annotations

from typing import Any, Final

import tenonnx
from tenonnx_serve.core import Core
from tenonnx_serve.model import Model
from tenonnx_serve.repository import Repository
from tenonnx_serve.tensors import TensorSpec

PLATFORM: Final = "tenonnx_onnx"

EXTENSIONS: Final = [
    "classification",
    "logging",
    "parameters",
    "system_shared_memory",
    "model_configuration",
    "binary_tensor_data",
    "model_repository",
    "model_repository(unload_dependents)",
    "statistics",
]


def server() -> dict[str, Any]:
    """Return the server's metadata."""
    return {"name": "tenonnx", "version": tenonnx.__version__, "extensions": EXTENSIONS}


def model(repository: Repository, model: Model) -> dict[str, Any]:
    """Return a model's inputs, outputs and loaded versions."""
    versions = sorted(repository.entries[model.name].versions)
    return {
        "name": model.name,
        "versions": list(map(str, versions)),
        "platform": PLATFORM,
        "inputs": [_described(spec) for spec in model.inputs.values()],
        "outputs": [_described(spec) for spec in model.outputs.values()],
    }


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


async def statistics(core: Core, name: str = "", version: str = "") -> dict[str, Any]:
    """Return the statistics of a version, of all versions of a model, or of all models.

    Raises:
        ServeError: There is no such model, or it is not loaded.
    """
    if name:
        core.repository.version(name, version)
    found = [
        one
        for one in await core.control.statistics()
        if name in ("", one["name"]) and version in ("", one["version"])
    ]
    return {"model_stats": found}
