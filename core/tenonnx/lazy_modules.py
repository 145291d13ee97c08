"""Importing onnx and onnx_ir when they are used, and without what a run never uses of them.

Modules that a run needs have ``onnx`` and ``onnx_ir`` from here: stand-ins, which import the
package when one of its names is first asked for. A session with a kept plan needs none.

The packages' imports take three times as long as the packages: sympy alone, for arithmetic on
symbolic dimensions, takes longer than everything else together. While one of them is imported, such
modules are found but not executed. Each is executed when one of its attributes is first used.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader  # takes longer to import than all of this
    from logging import Logger

    import onnx as onnx
    import onnx_ir as onnx_ir

    from tenonnx import graph as graph

LAZY = {
    "onnx": frozenset(
        {
            "calendar",
            "google.protobuf.internal.python_message",
            "google.protobuf.json_format",
            "google.protobuf.text_format",
            "importlib.metadata",
            "onnx.checker",
            "onnx.compose",
            "onnx.defs",
            "onnx.gen_proto",
            "onnx.helper",
            "onnx.numpy_helper",
            "onnx.parser",
            "onnx.printer",
            "onnx.shape_inference",
            "onnx.utils",
            "onnx.version_converter",
            "uuid",
        }
    ),
    "onnx_ir": frozenset(
        {
            "concurrent.futures",
            "json",
            "shutil",
            "tempfile",
            "onnx_ir.external_data",
            "onnx_ir.passes",
            "onnx_ir.schemas",
            "onnx_ir.tape",
            "onnx_ir.tensor_adapters",
            "packaging.version",
            "sympy",
        }
    ),
    "onnx_ir.passes.common": frozenset({"hashlib"}),
    "pathlib": frozenset({"fnmatch", "ntpath", "urllib.parse"}),
}
"""By the package that is being imported, the modules that it does not need at once."""


class LazyModule(ModuleType):
    """A module that has not run yet."""

    def __getattr__(self, name: str) -> Any:
        loader = self.__dict__["__loader__"]
        if isinstance(loader, LazyModuleLoader):
            if loader.importing:
                if name.startswith("__"):
                    raise AttributeError(name)
                if (answer := ANSWERS.get(self.__name__)) and (found := answer(self, name)):
                    return found
            loader.run(self)
        return self.__getattribute__(name)


class LazyModuleLoader:
    """Loads a module in two steps: at first it is empty, and runs when it is used."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._lock = threading.RLock()
        self._running = False
        self.importing = True

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leaves it to the module's loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Puts it off."""
        module.__class__ = LazyModule

    def run(self, module: ModuleType) -> None:
        """Runs the module, once; who asks for more of it while it runs sees what there is."""
        with self._lock:
            if self._running:
                return
            self._running = True
            self.importing = False
            try:
                self._loader.exec_module(module)
            except BaseException:
                self._running = False
                raise
            module.__loader__ = self._loader
            if module.__spec__ is not None:
                module.__spec__.loader = self._loader
            module.__class__ = ModuleType


class LazyImports:
    """Runs a package's own loader while modules that it names are lazy."""

    def __init__(self, loader: Loader, names: frozenset[str]) -> None:
        self._loader = loader
        self._names = names

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leaves it to the package's loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Imports the package."""
        if module.__name__ == PACKAGE_OF_ENUMS:
            _bind_enums(module)
        finder = LazyModuleFinder(self._names)
        sys.meta_path.insert(0, finder)
        try:
            self._loader.exec_module(module)
        finally:
            sys.meta_path.remove(finder)
            for loader in finder.loaders:
                loader.importing = False


class LazyModuleFinder:
    """Finds the lazy modules."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self.loaders: list[LazyModuleLoader] = []

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns a lazy module's spec, with the loader for it; ``None`` for other modules."""
        if fullname not in self._names:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader = LazyModuleLoader(spec.loader)
            self.loaders.append(loader)
            spec.loader = cast("Loader", loader)
        return spec


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

        module = sys.modules[ENUMS] = module_from_spec(spec)
        try:
            exec(code, vars(module))  # what its loader would do, but it has the code already
        except BaseException:
            del sys.modules[ENUMS]
            raise
        return module


def _bind_enums(package: ModuleType) -> None:
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
    """Stands for a logger, as ``logging`` takes long to import, and few processes say anything."""

    def __init__(self, name: str) -> None:
        self._logged_as = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        import logging

        return getattr(logging.getLogger(self._logged_as), name)


def logger(name: str) -> Logger:
    """Returns a logger that is made when something is said."""
    return cast("Logger", _Logger(name))


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
        names = LAZY.get(fullname)
        if names is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", LazyImports(spec.loader, names))
        return spec


def install() -> None:
    """Arranges for the next imports of the packages to do without."""
    if not any(isinstance(finder, PackageFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PackageFinder())


def _attribute(module: ModuleType, name: str) -> Any:
    if isinstance(loader := module.__loader__, LazyModuleLoader):
        loader.run(module)
    return getattr(module, name)


def _function(module: ModuleType, name: str) -> Callable[..., Any]:
    """Stands for a function that its importer keeps, and calls much later if ever."""
    return lambda *arguments, **options: _attribute(module, name)(*arguments, **options)


def _function_of_metadata(metadata: ModuleType, name: str) -> Callable[..., Any] | None:
    """Answers which version onnx has."""

    def version(distribution: str) -> str:
        from tenonnx import installed

        return installed.version(distribution) or _attribute(metadata, name)(distribution)

    return version if name == "version" else None


ANSWERS: dict[str, Callable[[ModuleType, str], Any]] = {
    "importlib.metadata": _function_of_metadata,
    "sympy": _function,
    "urllib.parse": _function,
}
"""Return attributes of a lazy module that is not executed yet, while its importer is imported."""
