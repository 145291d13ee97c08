"""Models in other servers: ``tenonnx_adapters.kserve`` and ``tenonnx_adapters.mlserver``.

Each module imports its server, which the extra of the same name of tenonnx-serve installs.
"""

from __future__ import annotations

import importlib
from typing import Any

from tenonnx import InvalidArgument, NodeArg
from tenonnx_serve.tensors import TensorSpec, spec_of


def needed(module: str) -> Any:
    """Return a server's module.

    Raises:
        ModuleNotFoundError: It is not installed; the message says how to install it.
    """
    library = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        message = f"{library} is not installed: pip install 'tenonnx-serve[{library}]'"
        raise ModuleNotFoundError(message, name=library) from error


def described(arguments: list[NodeArg]) -> dict[str, TensorSpec]:
    """Return inputs or outputs in the form of the Open Inference Protocol.

    Raises:
        InvalidArgument: The protocol has no type for one of them.
    """
    specs = {}
    for arg in arguments:
        if (spec := spec_of(arg)) is None:
            raise InvalidArgument(
                f"the Open Inference Protocol has no type for {arg.name!r}, {arg.type}"
            )
        specs[arg.name] = spec
    return specs
