"""The import of onnx_ir without that of sympy.

``import onnx_ir`` takes 0.1 s, and 0.5 s more for sympy, which only arithmetic on symbolic
dimensions needs (https://github.com/onnx/ir-py/pull/327 brought it). ``importlib.util.LazyLoader``
is no help: onnx_ir 1.1 reads names of sympy while it is imported, and in Python 3.11 to 3.13 even
an ``import`` statement makes such a module load.
"""

from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType
from typing import Any

# sympy, and the private module of onnx_ir 1.1 that reads names of it when it is imported.
#
# If another version reads such names elsewhere, sympy is imported then.
PUT_OFF = ("sympy", "onnx_ir._symbolic_shapes")

_removing = threading.Lock()


def import_onnx_ir() -> None:
    """Import onnx_ir, whose parts import sympy when they use it.

    In ``sys.modules``, nothing of this is left: a later ``import sympy`` is an ordinary one.
    """
    if "onnx_ir" in sys.modules or "sympy" in sys.modules:
        return
    placed = {name: sys.modules.setdefault(name, _stand_in(name)) for name in PUT_OFF}
    try:
        package = importlib.import_module("onnx_ir")
    finally:
        for name, module in placed.items():
            _remove(name, module)
    vars(package).setdefault("_symbolic_shapes", placed[PUT_OFF[1]])  # as an import sets it


def _stand_in(name: str) -> ModuleType:
    """Return a module that imports the one of its name when it is asked for an attribute."""
    module = ModuleType(name)

    def attribute(wanted: str) -> Any:
        _remove(name, module)
        return getattr(importlib.import_module(name), wanted)

    vars(module)["__getattr__"] = attribute
    return module


def _remove(name: str, module: ModuleType) -> None:
    with _removing:  # else it might be the module that another thread has just imported
        if sys.modules.get(name) is module:
            del sys.modules[name]
