"""Programs beside tenonnx: ``python beside.py GROUP MODEL`` prints as JSON what they found.

Each function of a group is one program. Those of a group run in one process, in their order.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import json
import logging
import pickle
import sys
import tempfile
import types
import zipimport
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

LOADERS = (
    importlib.machinery.BuiltinImporter, importlib.machinery.ExtensionFileLoader,
    importlib.machinery.FrozenImporter, importlib.machinery.NamespaceLoader,
    importlib.machinery.SourceFileLoader, importlib.util.LazyLoader, zipimport.zipimporter,
)  # fmt: skip

MODEL = sys.argv[-1]

called: list[str] = []
"""Functions of the collector that a session called."""


def run_session() -> None:
    """Open a model, runs it, and note who hides objects from the collector meanwhile."""
    import numpy as np

    def noted(name: str) -> Callable[[], None]:
        return lambda: called.append(name)

    with mock.patch.multiple(gc, freeze=noted("freeze"), unfreeze=noted("unfreeze")):
        import tenonnx

        session = tenonnx.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
        session.run(None, {session.get_inputs()[0].name: np.zeros((1, 1, 8, 8), np.float32)})


def symbols_of_sympy() -> list[str]:
    """Import a submodule of sympy first, then add to a symbol."""
    importlib.import_module("sympy.printing")
    symbol = importlib.import_module("sympy.core.symbol").Symbol
    sympy = importlib.import_module("sympy")
    return [str(symbol("x") + 1), type(sympy.factor).__name__]


def pickles() -> list[str]:
    """Pickle functions, as multiprocessing does."""
    import onnx
    import onnx_ir

    functions = onnx_ir.load, onnx.convert_model_to_external_data
    return [_qualified(pickle.loads(pickle.dumps(function))) for function in functions]


def _qualified(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def members() -> list[bool]:
    """List a module as completion in a shell does."""
    import onnx.helper

    functions = dict(inspect.getmembers(onnx.helper, inspect.isfunction))
    return ["make_node" in each for each in (dir(onnx.helper), vars(onnx.helper), functions)]


def signatures() -> dict[str, Any]:
    """Read the signature and the docstring of a function."""
    import onnx_ir

    function = onnx_ir.load
    parameters = [*inspect.signature(function).parameters]
    return {"parameters": parameters, "name": function.__name__, "doc": function.__doc__}


def mocks() -> str:
    """Patches the module that defines a function, and calls it by its other name."""
    import onnx.external_data_helper

    name = "onnx.external_data_helper.load_external_data_for_model"
    with mock.patch(name) as replaced:
        onnx.load_external_data_for_model(onnx.ModelProto(), ".")
    return "the mock was called" if replaced.called else "the original was called"


def levels_of_loggers() -> list[Any]:
    """Set the level of a logger of another project."""
    import onnx_ir

    onnx_ir._core.logger.level = 10
    return [onnx_ir._core.logger.name, logging.getLogger("onnx_ir._core").level]


def identity() -> list[bool]:
    """Compare names of one object."""
    import onnx.external_data_helper
    import onnx_ir

    helper = onnx.external_data_helper
    return [
        onnx.load_external_data_for_model is helper.load_external_data_for_model,
        onnx_ir.load is sys.modules["onnx_ir._io"].load,
    ]


def loaders() -> list[str]:
    """List the modules that were loaded in a way of their own."""
    return sorted(
        f"{name} {module.__spec__.loader}"
        for name, module in sys.modules.items()
        if getattr(module, "__spec__", None) is not None
        and module.__spec__.loader is not None
        and not name.startswith(("six.", "__editable__"))
        and module.__spec__.loader not in LOADERS
        and type(module.__spec__.loader) not in LOADERS
    )


def stand_ins() -> list[str]:
    """List names of others' modules that are bound to objects of this project."""
    return sorted(
        f"{name}.{key}"
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in ("google", "onnx", "onnx_ir", "pluggy", "sympy", "logging")
        for key, value in vars(module).items()
        if str(type(value).__module__).startswith("tenonnx") and name != "sympy"
    )


def one_extension_of_onnx() -> list[bool]:
    """Compare the names of onnx's compiled module."""
    import onnx.defs

    module = sys.modules["onnx.onnx_cpp2py_export"]
    return [
        onnx.onnx_cpp2py_export is module,
        type(module) is types.ModuleType,
        onnx.defs.C is module.defs,
    ]


def hooks_for_pyinstaller() -> list[bool]:
    """Look for the folders of hooks as PyInstaller does."""
    entries = importlib.metadata.entry_points(group="pyinstaller40", name="hook-dirs")
    folders = [Path(f) for e in entries if e.dist and e.dist.name == "tenonnx" for f in e.load()()]
    return [folder.joinpath("hook-tenonnx.py").is_file() for folder in folders]


def calls_of_the_collector() -> list[str]:
    """Return what ``run_session`` noted."""
    return called


def signatures_of_public_classes() -> dict[str, list[str]]:
    """Read the parameters of classes that plug-ins use."""
    import tenonnx

    names = "Format", "SessionOptions", "Step", "Transform"
    return {name: [*inspect.signature(getattr(tenonnx, name)).parameters] for name in names}


class Finder:
    """A finder that finds nothing, and notes for which modules it was asked."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def find_spec(self, name: str, *_: object) -> None:
        """Note a name."""
        self.asked.add(name)


class Noting(importlib.machinery.SourceFileLoader):
    """A loader of a program's own, which notes the modules that it executes."""

    executed: set[str] = set()  # noqa: RUF012 - shared by all loaders

    def exec_module(self, module: types.ModuleType) -> None:
        """Note the module's name."""
        self.executed.add(module.__name__)
        super().exec_module(module)


def hooks() -> dict[str, Any]:
    """Have a finder and a path hook of the program's own, and import tenonnx behind them."""
    finder = Finder()
    sys.meta_path.insert(0, finder)
    extensions = importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES
    sources = Noting, importlib.machinery.SOURCE_SUFFIXES
    sys.path_hooks.insert(0, importlib.machinery.FileFinder.path_hook(extensions, sources))
    sys.path_importer_cache.clear()
    run_session()
    importlib.import_module("onnx.helper")
    of_finder = ["google.protobuf", "onnx", "onnx.helper", "onnx_ir", "onnx_ir._core", "pluggy"]
    of_loader = ["google.protobuf.message", "onnx_ir._core", "pluggy._hooks"]
    return {
        "of_the_program_are_asked": [name for name in of_finder if name in finder.asked],
        "of_paths_are_applied": [name for name in of_loader if name in Noting.executed],
    }


def reloaded() -> dict[str, Any]:
    """Reloads tenonnx before and after a session."""
    before = [*sys.meta_path]
    importlib.reload(importlib.import_module("tenonnx"))
    run_session()
    importlib.reload(sys.modules["tenonnx"])
    added = [finder for finder in sys.meta_path if finder not in before]
    return {"tenonnx_adds_no_finder": [str(finder) for finder in added]}


def packages() -> dict[str, Any]:
    """Import a stranger's ``tenonnx_acme``, which has a package beside a module of its name."""
    run_session()
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder, "tenonnx_acme", "both")
        inner.mkdir(parents=True)
        inner.parent.joinpath("__init__.py").touch()
        inner.joinpath("__init__.py").write_text("kind = 'package'")
        inner.parent.joinpath("both.py").write_text("kind = 'module'")
        sys.path.insert(0, folder)
        kind = importlib.import_module("tenonnx_acme.both").kind
    return {"win_over_modules_of_their_name": kind}


AFTER_SESSION = (
    stand_ins, loaders, symbols_of_sympy, pickles, members, signatures, mocks, levels_of_loggers,
    identity, one_extension_of_onnx, hooks_for_pyinstaller, calls_of_the_collector,
    signatures_of_public_classes,
)  # fmt: skip


def session() -> dict[str, Any]:
    """Run programs after a session; what fails is found as an error's text."""
    run_session()
    found: dict[str, Any] = {}
    for look in AFTER_SESSION:
        try:
            found[f"then_{look.__name__}"] = look()
        except Exception as error:
            found[f"then_{look.__name__}"] = repr(error)
    return found


def main() -> None:
    """Run a group, and print what it found."""
    group = {g.__name__: g for g in (session, hooks, reloaded, packages)}[sys.argv[1]]
    print(json.dumps(group()))


if __name__ == "__main__":
    main()
