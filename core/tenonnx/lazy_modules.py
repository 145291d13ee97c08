"""Importing onnx and onnx_ir when they are used, and without what a run never uses of them.

Modules that a run needs have ``onnx`` and ``onnx_ir`` from here: stand-ins, which import the
package when one of its names is first asked for. A session with a kept plan needs none.

While one of the packages is imported, modules that it does not need at once are lazy:
``lazy_imports`` says which and how.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from logging import Logger

    import onnx as onnx
    import onnx_ir as onnx_ir

    from tenonnx import graph as graph

PACKAGES = frozenset({"onnx", "onnx_ir", "pathlib"})
"""In whose import, or in that of a module of theirs, something is lazy."""

PACKAGE_OF_ENUMS, ENUMS = "onnx_ir", "onnx_ir._enums"
"""A module that needs nothing of its package, and what weights need of it."""

_enums_lock = threading.Lock()


def _enums_alone() -> ModuleType | None:
    """Returns the module of onnx_ir's enums, which the package takes for its own once it is there.

    ``None`` if the package is imported already, or is of a version that is made otherwise.
    """
    with _enums_lock:
        if PACKAGE_OF_ENUMS in sys.modules or ENUMS in sys.modules:
            return None if PACKAGE_OF_ENUMS in sys.modules else sys.modules[ENUMS]
        package = PathFinder.find_spec(PACKAGE_OF_ENUMS)
        folders = None if package is None else package.submodule_search_locations
        spec = PathFinder.find_spec(ENUMS, folders) if folders else None
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        code = spec.loader.get_code(ENUMS)
        if code is None or any(name.startswith(PACKAGE_OF_ENUMS) for name in code.co_names):
            return None  # it imports the package, which may be waiting for this
        from importlib.util import module_from_spec  # imported for this alone

        from tenonnx.lazy_types import run

        module = sys.modules[ENUMS] = module_from_spec(spec)
        try:
            run(code, vars(module))  # what its loader would do, but it has the code already
        except BaseException:
            del sys.modules[ENUMS]
            raise
        return module


def bind_enums(package: ModuleType) -> None:
    """Does to the package what importing the module from within it would."""
    with _enums_lock:
        if ENUMS in sys.modules:
            vars(package)[ENUMS.rpartition(".")[2]] = sys.modules[ENUMS]


class Package:
    """Stands for a package that is imported when one of its names is first asked for."""

    def __init__(self, name: str) -> None:
        self._imported_as = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # whoever looks at a module's names asks for some
            raise AttributeError(name)
        alone = name in ENUM_NAMES and self._imported_as == PACKAGE_OF_ENUMS
        home = _enums_alone() if alone else None
        if home is None or not hasattr(home, name):
            home = importlib.import_module(self._imported_as)
        found = getattr(home, name)
        setattr(self, name, found)  # it is asked for once
        return found


class _Logger:
    """Stands for a logger, as ``logging`` takes long to import, and few processes say anything.

    As long as nobody has imported it, nobody has asked for more than warnings.
    """

    def __init__(self, name: str) -> None:
        self._logged_as = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in BELOW_WARNINGS and not has_logging():
            return BELOW_WARNINGS[name]
        import logging

        while _arrangements:
            _arrangements.pop()(logging)
        found = getattr(logging.getLogger(self._logged_as), name)
        if isinstance(found, MethodType):
            setattr(self, name, found)  # some are asked for with every value of a graph
        return found


WARNING = 30
"""The level of that name in ``logging``."""

BELOW_WARNINGS: dict[str, Callable[..., Any]] = {
    "debug": lambda *_, **__: None,
    "info": lambda *_, **__: None,
    "isEnabledFor": lambda level: level >= WARNING,
}
"""The methods of a logger that say nothing unless ``logging`` is told to."""

_arrangements: list[Callable[[Any], object]] = []


def logger(name: str) -> Logger:
    """Returns a logger that is made when something is said."""
    return cast("Logger", _Logger(name))


def has_logging() -> bool:
    """Says whether ``logging`` has run in this process."""
    found = sys.modules.get("logging")
    return found is not None and type(found).__name__ != "LazyModule"


def with_logging(arrange: Callable[[Any], object]) -> None:
    """Calls a function with ``logging``, now if that is there, else before it is first used."""
    if has_logging():
        arrange(sys.modules["logging"])
    else:
        _arrangements.append(arrange)


ENUM_NAMES = frozenset({"AttributeType", "DataType"})

if not TYPE_CHECKING:
    onnx, onnx_ir = Package("onnx"), Package("onnx_ir")
    graph = Package("tenonnx.graph")


class PackageFinder:
    """Finds the packages in whose import something is lazy."""

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of such a package; ``None`` for others."""
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        from tenonnx.lazy_imports import spec_of  # a session with a kept plan needs none of it

        return spec_of(fullname, path, target)


def install() -> None:
    """Arranges for the next imports of the packages to do without."""
    if not any(isinstance(finder, PackageFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PackageFinder())
