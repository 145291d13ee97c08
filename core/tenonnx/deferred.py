"""Importing onnx_ir without sympy, which it needs for arithmetic on symbolic dimensions only.

sympy takes longer to import than everything else here together, and a run never uses it. While
``onnx_ir`` is imported, a stand-in takes sympy's place in it, and brings in the real one when
the first attribute is asked for. Nobody else sees the stand-in.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

DEFERRED = "sympy"
IMPORTER = "onnx_ir"


class StandIn(ModuleType):
    """Looks like sympy to whoever holds it.

    What ``onnx_ir`` takes from it while it is being imported are functions that it puts in
    tables; they are looked up when they are called.
    """

    importing = True

    def __getattr__(self, name: str) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if self.importing and caller.startswith(IMPORTER) and not name.startswith("__"):
            return lambda *arguments, **options: self._real(name)(*arguments, **options)
        return self._real(name)

    def _real(self, name: str) -> Any:
        if sys.modules.get(DEFERRED) is self:
            del sys.modules[DEFERRED]
        value = getattr(importlib.import_module(DEFERRED), name)
        if not self.importing:
            setattr(self, name, value)
        return value


class ImportWithStandIn(Loader):
    """Runs a module's own loader with the stand-in in place."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leaves it to the module's loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Imports the module; sympy stays out of ``sys.modules`` unless it was there."""
        if DEFERRED in sys.modules:
            self._loader.exec_module(module)
            return
        stand_in = sys.modules[DEFERRED] = StandIn(DEFERRED)
        try:
            self._loader.exec_module(module)
        finally:
            stand_in.importing = False
            if sys.modules.get(DEFERRED) is stand_in:
                del sys.modules[DEFERRED]


class Finder(MetaPathFinder):
    """Finds ``onnx_ir`` once and lets it be imported with the stand-in."""

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of ``onnx_ir`` with a loader that defers sympy; ``None`` for others."""
        if fullname != IMPORTER:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = ImportWithStandIn(spec.loader)
        return spec


def install() -> None:
    """Arranges for the next import of ``onnx_ir`` to do without sympy."""
    if IMPORTER not in sys.modules and DEFERRED not in sys.modules:
        sys.meta_path.insert(0, Finder())
