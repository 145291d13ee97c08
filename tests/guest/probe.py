"""Reports what a program sees of its process: ``python probe.py SCENARIO MODEL``, as JSON.

``absent`` is the program without tenonnx, which the other scenarios are compared with.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import inspect
import json
import locale
import logging
import os
import pickle
import re
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODULES = (
    "google.protobuf", "google.protobuf.message", "json", "logging", "onnx",
    "onnx.external_data_helper", "onnx.helper", "onnx_ir", "pathlib", "sympy",
)  # fmt: skip

ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
HANDLERS = re.compile(r"\[<weakref.*?\]")
"""The handlers of all loggers, a default of ``logging.shutdown``."""


def import_modules() -> None:
    """Import everything that is compared, and use the module that may be imported later."""
    for name in MODULES:
        importlib.import_module(name)
    importlib.import_module("sympy").__doc__  # noqa: B018 - LazyLoader imports it now
    importlib.import_module("numpy")


def import_tenonnx() -> None:
    """Import tenonnx, and each of its names."""
    tenonnx = importlib.import_module("tenonnx")
    for name in dir(tenonnx):
        getattr(tenonnx, name)


def run_session(model: str) -> None:
    """Open a model and runs it, with all threads and with one."""
    import numpy as np

    import tenonnx

    for threads in (0, 1):
        options = tenonnx.SessionOptions(intra_op_num_threads=threads)
        session = tenonnx.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        (image,) = session.get_inputs()
        session.run(None, {image.name: np.zeros((1, 1, 8, 8), np.float32)})


def run_beside_imports(model: str) -> None:
    """Run a session while another thread imports what is compared."""
    failures: list[BaseException] = []

    def other() -> None:
        try:
            import_modules()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    run_session(model)
    thread.join()
    if failures:
        raise failures[0]


SCENARIOS: dict[str, tuple[Callable[[str], None], ...]] = {
    "absent": (lambda _: import_modules(),),
    "first": (lambda _: import_tenonnx(), lambda _: import_modules()),
    "last": (lambda _: import_modules(), lambda _: import_tenonnx()),
    "session": (run_session, lambda _: import_modules()),
    "plan": (run_session, lambda _: import_modules()),
    "kernels": (run_session, lambda _: import_modules()),
    "thread": (run_beside_imports,),
}
"""The steps of a program before it looks. ``plan`` runs with the cache that ``session`` left."""


def described(value: Any) -> dict[str, Any]:
    """Describe an object: its type, signature, docstring, home, and pickle."""
    facts: dict[str, Any] = {
        "type": f"{type(value).__module__}.{type(value).__qualname__}",
        "doc": hashlib.sha256(repr(value.__doc__).encode()).hexdigest()[:8],
    }
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        home = sys.modules.get(value.__module__ or "")
        facts["home"] = f"{value.__module__}:{value.__qualname__}"
        facts["identity"] = getattr(home, value.__qualname__, None) is value
        facts["pickle"] = _pickle(value)
    if callable(value):
        facts["signature"] = _signature(value)
    return facts


def _pickle(value: object) -> str:
    try:
        return pickle.dumps(value).hex()
    except Exception as error:
        return type(error).__name__


def _signature(value: Callable[..., object]) -> str:
    try:
        return HANDLERS.sub("[]", ADDRESS.sub("0x", str(inspect.signature(value))))
    except (TypeError, ValueError) as error:
        return type(error).__name__


def modules() -> dict[str, Any]:
    """Describe each module, and all its public names but its submodules."""
    found = {}
    for name in MODULES:
        module = sys.modules[name]
        names = [each for each in dir(module) if not _is_submodule(module, each)]
        public = [each for each in names if not each.startswith("_")]
        found[name] = {
            "type": type(module).__name__,
            "loader": _loader(module),
            "dir": names,
            "names": {each: described(getattr(module, each)) for each in public},
        }
    return found


def _is_submodule(module: types.ModuleType, name: str) -> bool:
    """Whether a name is of a module, which a package has once anybody has imported it."""
    return isinstance(getattr(module, name), types.ModuleType)


def _loader(module: types.ModuleType) -> str:
    loader = module.__spec__.loader if module.__spec__ else None
    return loader.__name__ if isinstance(loader, type) else type(loader).__name__


def process() -> dict[str, Any]:
    """Describe what belongs to the whole process."""
    import numpy as np
    from threadpoolctl import threadpool_info

    return {
        "sys.meta_path": [_named(finder) for finder in sys.meta_path],
        "sys.path_hooks": [_named(hook) for hook in sys.path_hooks],
        "sys.path": sys.path,
        "import": f"{__import__.__module__}.{__import__.__qualname__}",
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks)],
        "interpreter": [sys.getswitchinterval(), sys.getrecursionlimit(), sys.getprofile() is None],
        "hooks": [_named(hook) for hook in (sys.excepthook, sys.displayhook, sys.unraisablehook)],
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "threading": [_named(threading.excepthook), threading.gettrace() is None],
        "signals": {int(s): _named(signal.getsignal(s)) for s in sorted(signal.valid_signals())},
        "wakeup": signal.set_wakeup_fd(-1),
        "locale": locale.setlocale(locale.LC_ALL),
        "warnings": [str(entry) for entry in warnings.filters],
        "environment": {**os.environ},
        "files": _files(),
        "folder": str(Path.cwd()),
        "umask": os.umask(0o22),
        "numpy": [np.geterr(), {k: str(v) for k, v in np.get_printoptions().items()}],
        "blas": [e["num_threads"] for e in threadpool_info() if "numpy.libs" in e["filepath"]],
        "logging": [
            logging.getLogger().level,
            len(logging.getLogger().handlers),
            logging.getLoggerClass().__qualname__,
            logging.root.manager.disable,
        ],
        "strangers": _strangers(),
    }


def loggers() -> dict[str, list[Any]]:
    """Describe the loggers of others."""
    return {
        name: [type(logger).__name__, logger.level, logger.propagate, len(logger.handlers)]
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and not name.startswith("tenonnx")
    }


def _named(value: object) -> str:
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', named)}"


def _files() -> list[str]:
    """Return the files that are open, on Linux."""
    folder = Path("/proc/self/fd")
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # the folder itself
            found.append(re.sub(r"\[\d+\]", "", str(path.readlink())))
    return sorted(found)


def _strangers() -> list[str]:
    """Return the names in others' modules whose values are of this project's types."""
    return [
        f"{name}.{key}"
        for name, module in list(sys.modules.items())
        if module is not None and not name.startswith(("tenonnx", "__main__", "tests"))
        for key, value in list(getattr(module, "__dict__", {}).items())
        if str(type(value).__module__).startswith("tenonnx")
    ]


def main() -> None:
    """Plays a scenario, then prints the report."""
    scenario, model = sys.argv[1:]
    for step in SCENARIOS[scenario]:
        step(model)
    print(json.dumps({"process": process(), "modules": modules(), "loggers": loggers()}))


if __name__ == "__main__":
    main()
