"""Importing onnx and onnx_ir without what they import and a run never uses.

That takes three times as long to import as they do themselves: sympy alone, which is there for
arithmetic on symbolic dimensions, longer than everything else together. While one of them is
imported, such modules are found but not run; each runs, in its place, when somebody first asks for
one of its attributes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader  # takes longer to import than all of this

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
            "onnx_ir.schemas",
            "onnx_ir.tensor_adapters",
            "packaging.version",
            "sympy",
        }
    ),
    "onnx_ir.passes.common": frozenset({"hashlib"}),
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


def _function_of_sympy(sympy: ModuleType, name: str) -> Callable[..., Any]:
    """Stands for a function that is put in a table, and called much later if ever."""
    return lambda *arguments, **options: _attribute(sympy, name)(*arguments, **options)


def _function_of_metadata(metadata: ModuleType, name: str) -> Callable[..., Any] | None:
    """Answers which version onnx has."""

    def version(distribution: str) -> str:
        from tenonnx import installed

        return installed.version(distribution) or _attribute(metadata, name)(distribution)

    return version if name == "version" else None


ANSWERS: dict[str, Callable[[ModuleType, str], Any]] = {
    "importlib.metadata": _function_of_metadata,
    "sympy": _function_of_sympy,
}
"""What a lazy module says, while its importer is imported, without running."""
