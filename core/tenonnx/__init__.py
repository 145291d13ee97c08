"""tenonnx: an ONNX runtime in which every moving part is a plug-in and every weight exists once.

``import tenonnx as ort`` and go on as with onnxruntime::

    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"x": x})
"""

from __future__ import annotations

import importlib
import re
from typing import Any

# A module is imported when one of its names is first used, so that ``import tenonnx`` and
# plug-ins that only need a decorator stay cheap.
#
# The stub beside this file, which type checkers read, says which module that is.
_IMPORT = re.compile(r"^from tenonnx\.([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
_STUB = __loader__.get_data(f"{__path__[0]}/__init__.pyi").decode()
_MODULE_OF = {
    name: module
    for module, names in _IMPORT.findall(_STUB)
    for name in re.findall(r"(\w+) as", names)
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from tenonnx.process.distributions import release

        return release()
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tenonnx' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tenonnx.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
