"""tenonnx: an ONNX runtime in which every moving part is a plugin and every weight exists once.

``import tenonnx as ort`` and go on as with onnxruntime::

    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"x": x})
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tenonnx import deferred
from tenonnx.errors import (
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    NotSupported,
    PluginError,
    RuntimeException,
    TenonnxError,
)

deferred.install()

if TYPE_CHECKING:
    from tenonnx.formats import Format
    from tenonnx.hookspecs import hookimpl
    from tenonnx.operators import Array, Kernel, Namespace, OperatorTable
    from tenonnx.options import ExecutionMode, GraphOptimizationLevel, SessionOptions
    from tenonnx.plan import Observer, Plan
    from tenonnx.plugins import PluginSet, default_plugins
    from tenonnx.provider import HOST, Device, Provider, Segment, Step
    from tenonnx.session import InferenceSession, get_all_providers, get_available_providers
    from tenonnx.signature import NodeArg
    from tenonnx.tensors import WeightTensor
    from tenonnx.transforms import Transform, TransformContext
    from tenonnx.weights import Weight, WeightRegistry, default_registry

# Where each public name lives; a module is imported when one of its names is first used, so
# that `import tenonnx` and plugins that only need a decorator stay cheap.
_HOMES = {
    "formats": ("Format",),
    "hookspecs": ("hookimpl",),
    "operators": ("Array", "Kernel", "Namespace", "OperatorTable"),
    "options": ("ExecutionMode", "GraphOptimizationLevel", "SessionOptions"),
    "plan": ("Observer", "Plan"),
    "plugins": ("PluginSet", "default_plugins"),
    "provider": ("HOST", "Device", "Provider", "Segment", "Step"),
    "session": ("InferenceSession", "get_all_providers", "get_available_providers"),
    "signature": ("NodeArg",),
    "tensors": ("WeightTensor",),
    "transforms": ("Transform", "TransformContext"),
    "weights": ("Weight", "WeightRegistry", "default_registry"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "HOST",
    "Array",
    "Device",
    "EPFail",
    "ExecutionMode",
    "Fail",
    "Format",
    "GraphOptimizationLevel",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "Kernel",
    "Namespace",
    "NoSuchFile",
    "NodeArg",
    "NotSupported",
    "Observer",
    "OperatorTable",
    "Plan",
    "PluginError",
    "PluginSet",
    "Provider",
    "RuntimeException",
    "Segment",
    "SessionOptions",
    "Step",
    "TenonnxError",
    "Transform",
    "TransformContext",
    "Weight",
    "WeightRegistry",
    "WeightTensor",
    "default_plugins",
    "default_registry",
    "get_all_providers",
    "get_available_providers",
    "hookimpl",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("tenonnx")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tenonnx' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tenonnx.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
