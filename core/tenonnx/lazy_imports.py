"""Lazy modules: what the imports of onnx and onnx_ir bring in and a session rarely needs.

These imports take three times as long as the packages: sympy alone, for arithmetic on symbolic
dimensions, takes longer than everything else together. While one of them is imported, such modules
are found but not executed. Each is executed when one of its attributes is first used.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import typing
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from tenonnx.lazy_modules import PACKAGE_OF_ENUMS, bind_enums, has_logging, logger

if TYPE_CHECKING:
    from importlib.abc import Loader  # takes longer to import than all of this

LAZY = {
    "onnx": frozenset(
        {
            "calendar",
            "google.protobuf.descriptor_database",
            "google.protobuf.internal.python_edition_defaults",
            "google.protobuf.internal.python_message",
            "google.protobuf.json_format",
            "google.protobuf.text_encoding",
            "google.protobuf.text_format",
            "importlib.metadata",
            "onnx.checker",
            "onnx.compose",
            "onnx.defs",
            "onnx.external_data_helper",
            "onnx.gen_proto",
            "onnx.helper",
            "onnx.numpy_helper",
            "onnx.onnx_cpp2py_export",
            "onnx.parser",
            "onnx.printer",
            "onnx.serialization",
            "onnx.shape_inference",
            "onnx.utils",
            "onnx.version_converter",
            "uuid",
        }
    ),
    "onnx.external_data_helper": frozenset(
        {"onnx.onnx_cpp2py_export", "onnx.onnx_cpp2py_export.checker", "uuid"}
    ),
    "onnx_ir": frozenset(
        {
            "concurrent.futures",
            "json",
            "logging",
            "ml_dtypes",
            "shutil",
            "tempfile",
            "typing_extensions",
            "onnx_ir._io",
            "onnx_ir._multi_device",
            "onnx_ir._safetensors",
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


def spec_of(fullname: str, path: Any, target: ModuleType | None) -> ModuleSpec | None:
    """Returns the spec of a package in whose import modules are lazy; ``None`` for others."""
    names = LAZY.get(fullname)
    if names is None:
        return None
    spec = PathFinder.find_spec(fullname, path, target)
    if spec is not None and spec.loader is not None:
        spec.loader = cast("Loader", LazyImports(spec.loader, names))
    return spec


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

    def leave(self, name: str) -> None:
        """Notes that the package in whose import the module is lazy has been imported."""
        del name
        self.importing = False


class LazyExtensionLoader(LazyModuleLoader):
    """Stands for a module in machine code, or one inside it, while a package is imported.

    Then it leaves, as the module brings those inside it into ``sys.modules`` itself.
    """

    def __init__(self, loader: Loader | None) -> None:
        super().__init__(cast("Loader", loader))

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Has an empty one made."""
        del spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Puts it off, and has the modules inside it looked for."""
        super().exec_module(module)
        module.__path__ = []

    def run(self, module: ModuleType) -> None:
        """Imports the module in place of its stand-in, which gets all its names."""
        with self._lock:
            if isinstance(module.__loader__, LazyModuleLoader):
                real = self._imported(module) if self.importing else None
                vars(module).update(vars(real or importlib.import_module(module.__name__)))
                module.__class__ = ModuleType

    def _imported(self, module: ModuleType) -> ModuleType:
        """Imports the module although it is lazy now."""
        from importlib.util import module_from_spec, spec_from_loader  # imported for this alone

        name = module.__name__
        spec = spec_from_loader(name, self._loader) if self._loader else None
        if spec is None:  # it is inside another, which fills the stand-in
            _attribute(sys.modules[name.rpartition(".")[0]], "__doc__")
            return module
        sys.modules[name] = real = module_from_spec(spec)
        try:
            self._loader.exec_module(real)
        except BaseException:
            sys.modules[name] = module
            raise
        return real

    def leave(self, name: str) -> None:
        """Has the module imported when it is next imported, or one of its names is used."""
        super().leave(name)
        if isinstance(sys.modules.get(name), LazyModule):
            del sys.modules[name]


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
            bind_enums(module)
        finder = LazyModuleFinder(self._names)
        sys.meta_path.insert(0, finder)
        try:
            self._loader.exec_module(module)
        finally:
            sys.meta_path.remove(finder)
            for name, loader in finder.loaders.items():
                loader.leave(name)
            _part_from(module)


class LazyModuleFinder:
    """Finds the lazy modules."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self.loaders: dict[str, LazyModuleLoader] = {}

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns a lazy module's spec, with the loader for it; ``None`` for other modules."""
        if fullname not in self._names:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None and fullname.rpartition(".")[0] in self.loaders:
            spec = ModuleSpec(fullname, None)
        if spec is not None:
            spec.loader = cast("Loader", self._lazy(fullname, spec.loader))
        return spec

    def _lazy(self, name: str, loader: Loader | None) -> LazyModuleLoader:
        if loader is None or isinstance(loader, ExtensionFileLoader):
            made: LazyModuleLoader = LazyExtensionLoader(loader)
        else:
            inside = LAZY.get(name)
            whole = loader if inside is None else cast("Loader", LazyImports(loader, inside))
            made = LazyModuleLoader(whole)
        self.loaders[name] = made
        return made


class Later:
    """Stands for a name of a lazy module, which a package that is imported takes for its own."""

    def __init__(self, module: ModuleType, name: str) -> None:
        self._of = module, name

    def found(self) -> Any:
        """Returns the object, with the attributes that the package has set meanwhile."""
        said = {key: value for key, value in vars(self).items() if key != "_of"}
        found = _attribute(*self._of)
        for key, value in said.items():
            setattr(found, key, value)
        return found


class Package(ModuleType):
    """A package with names that are looked up when they are first asked for."""

    def __getattr__(self, name: str) -> Any:
        later = self.__dict__["_later"].get(name)
        if later is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = vars(self)[name] = later.found()
        return found


def _part_from(package: ModuleType) -> None:
    """Has a package without the names of lazy modules until somebody asks it for one."""
    later = {name: each for name, each in vars(package).items() if type(each) is Later}
    if later:
        for name in later:
            del vars(package)[name]
        package.__class__ = Package
        vars(package)["_later"] = later


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


def _function_alone(module: ModuleType, name: str) -> Callable[..., Any] | None:
    """Stands for a function, not for a class or a constant, as names tell them apart."""
    return _function(module, name) if name.islower() else None


def _loggers(logging: ModuleType, name: str) -> Callable[..., Any] | None:
    """Answers with loggers that are made when something is said."""

    def get(of: str | None = None) -> Any:
        return logger(of) if of and not has_logging() else _attribute(logging, name)(of)

    return get if name == "getLogger" else None


def _of_typing(extensions: ModuleType, name: str) -> Any:
    """Answers what annotations name, which nobody evaluates, and the mark of what is deprecated."""
    if name == "deprecated":
        return functools.partial(_deprecated, extensions)
    return getattr(typing, "TypeGuard" if name == "TypeIs" else name, None)


def _deprecated(extensions: ModuleType, message: str, **options: Any) -> Callable[[Any], Any]:
    """Marks a function as deprecated once it is called."""

    def decorate(function: Any) -> Any:
        if not isinstance(function, FunctionType):
            return _attribute(extensions, "deprecated")(message, **options)(function)

        @functools.wraps(function)
        def warning(*arguments: Any, **named: Any) -> Any:
            level = options.get("stacklevel", 1) + 1  # this is a call more
            mark = _attribute(extensions, "deprecated")(message, **{**options, "stacklevel": level})
            return mark(function)(*arguments, **named)

        return warning

    return decorate


ANSWERS: dict[str, Callable[[ModuleType, str], Any]] = {
    "importlib.metadata": _function_of_metadata,
    "logging": _loggers,
    "onnx.external_data_helper": _function_alone,
    "onnx.onnx_cpp2py_export": lambda _, name: name == "ONNX_ML",
    "onnx_ir._io": _function_alone,
    "onnx_ir._multi_device": Later,
    "onnx_ir._safetensors": _function_alone,
    "sympy": _function,
    "typing_extensions": _of_typing,
    "urllib.parse": _function,
}
"""Return attributes of a lazy module that is not executed yet, while its importer is imported."""
