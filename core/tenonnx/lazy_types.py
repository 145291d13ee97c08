"""onnx_ir's enums without ml_dtypes, which takes longer to import than the graph of a small model.

Its module of enums has two tables of dtypes, a dozen of them ml_dtypes'. Few models have one: the
tables do without them until somebody looks for what is not there.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from tenonnx.lazy_modules import Package

MODULE = "ml_dtypes"

BY_DTYPE, BY_KIND = "_NP_TYPE_TO_DATA_TYPE", "_DATA_TYPE_TO_NP_TYPE"
"""The tables: element types by dtype, and the reverse."""


def run(code: CodeType, names: dict[str, Any]) -> None:
    """Runs the code of the module of enums, without importing ml_dtypes if that can be.

    Args:
        code: The module's.
        names: The module's, to which the code adds.
    """
    before = dict(names)
    if MODULE not in sys.modules:
        stand_in = StandIn()
        # Not in `sys.modules`, where another thread would find it.
        names["__builtins__"] = {**vars(builtins), "__import__": stand_in.or_imported}
        exec(code, names)
        if put_off(names, stand_in):
            return
        names.clear()  # it is of a version that uses the types otherwise
        names.update(before)
    exec(code, names)


class StandIn(ModuleType):
    """Stands for ml_dtypes: each of its types is a dtype with the type's name for a field."""

    def __init__(self) -> None:
        super().__init__(MODULE)
        self._told: list[tuple[str, np.dtype[Any]]] = []

    def __getattr__(self, name: str) -> np.dtype[Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        self._told.append((name, np.dtype([(f"{MODULE}.{name}", np.uint8)])))
        return self._told[-1][1]

    def or_imported(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Imports a module, if it is not this one."""
        return self if name == MODULE else builtins.__import__(name, *arguments, **options)

    def told(self) -> list[tuple[str, np.dtype[Any]]]:
        """Returns the types that were asked for, as often as they were."""
        return self._told.copy()


def put_off(names: dict[str, Any], stand_in: StandIn) -> bool:
    """Has the tables completed when that is needed; says whether the stand-ins are in them alone.

    Args:
        names: Those of the module of enums, which gets other tables.
        stand_in: It imported this one.
    """
    tables = [names.get(name) for name in (BY_DTYPE, BY_KIND)]
    if names.get(MODULE) is not stand_in or any(type(table) is not dict for table in tables):
        return False
    by_dtype, by_kind = (dict[Any, Any](table or {}) for table in tables)
    later = {}
    for name, dtype in stand_in.told():
        kind = later[name] = by_dtype.pop(dtype, None)  # there is none for whom else asked for it
        if kind is None or by_kind.pop(kind, None) is None:
            return False
    if any(dtype.names for dtype in by_kind.values()):
        return False

    def complete() -> None:
        types = importlib.import_module(MODULE)
        for name, kind in later.items():
            dtype = np.dtype(getattr(types, name))
            names[BY_DTYPE][dtype], names[BY_KIND][kind] = kind, dtype

    names[BY_DTYPE], names[BY_KIND] = Table(by_dtype, complete), Table(by_kind, complete)
    names[MODULE], names["__builtins__"] = Package(MODULE), vars(builtins)
    return True


class Table(dict[Any, Any]):
    """A table that is completed when something is looked for that it lacks.

    Args:
        known: What it has.
        complete: Adds what it lacks.
    """

    def __init__(self, known: dict[Any, Any], complete: Callable[[], None]) -> None:
        super().__init__(known)
        self._complete = complete

    def __contains__(self, key: object) -> bool:
        if not super().__contains__(key):
            self._complete()
        return super().__contains__(key)

    def __missing__(self, key: Any) -> Any:
        if key in self:
            return self[key]
        raise KeyError(key)
