"""Hooks for PyInstaller, which finds their folder by the entry point ``pyinstaller40``.

PyInstaller reads imports, and misses modules that are named in strings, metadata of distributions,
and kernels. ``hook-tenonnx.py`` names them: of tenonnx itself and of all plug-ins that are
installed where a program is frozen.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path

# Modules that a frozen program has if it imports them itself, each with its purpose.
LEFT_OUT_MODULES = {
    "tenonnx.__main__": "a program of its own",
    "tenonnx.as_onnxruntime": "runs programs with another interpreter",
    "tenonnx.cli": "belongs to the command tenonnx",
    "tenonnx.testing": "tests plug-ins, with pytest and hypothesis",
}

# Packages that are no plug-ins.
RUNTIME = ("tenonnx", "tenonnx_array")

# The groups of entry points that announce plug-ins, and packages with kernels.
ENTRY_GROUPS = ("tenonnx", "tenonnx.kernels")


def hook_dirs() -> list[str]:
    """Return the folders of hooks."""
    return [str(Path(__file__).parent)]


def plugins() -> dict[str, str]:
    """Return the plug-ins that are installed: the top package of each, with its distribution."""
    found = {}
    for group in ENTRY_GROUPS:
        for entry in importlib.metadata.entry_points(group=group):
            if entry.dist is not None:
                found[entry.module.partition(".")[0]] = entry.dist.name
    return found


def modules() -> list[str]:
    """Return the names of all modules that a session may import by their names."""
    packages = {*RUNTIME, *plugins()}
    return sorted(name for package in packages for name in modules_of(package))


def modules_of(package: str) -> Iterator[str]:
    """Yield a package and the modules in it, without importing any."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return
    yield package
    for place in spec.submodule_search_locations or ():
        folder = Path(place)
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))
            if all(part.isidentifier() for part in parts) and not _is_apart(name):
                yield name


def _is_apart(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in LEFT_OUT_MODULES)
