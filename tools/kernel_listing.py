"""Writes the listings that say which module is for which operators, so that few are imported."""

from __future__ import annotations

import importlib
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tenonnx.operators import OperatorTable
from tenonnx_cpu.fuse import FUSIONS
from tenonnx_cpu.kernel_selection import SPECIALIZATIONS

ROOT = Path(__file__).parents[1]
# The folder of a package, and the domain of the operators that are listed without one.
PACKAGES = {
    "tenonnx_array": (ROOT / "providers" / "tenonnx_array", "ai.onnx"),
    "tenonnx_contrib": (ROOT / "plugins" / "tenonnx_contrib", "com.microsoft"),
    "tenonnx_cpu": (ROOT / "providers" / "tenonnx_cpu", "ai.onnx"),
}

HAS_KERNELS = re.compile(r"^(table\b.*= |@(specialize|fusion)\()", re.MULTILINE)

INTRODUCTION = '''\
"""The module of each operator; it is imported when one of its operators is first needed.

Written by `python tools/kernel_listing.py`; a test checks that it is up to date.
"""

from __future__ import annotations

from typing import Final

LISTING: Final = {
'''


def main() -> None:
    """Write the modules."""
    for package, (folder, _) in PACKAGES.items():
        (folder / "listing.py").write_text(listing(package))


def listing(package: str) -> str:
    """Return the text of a package's listing."""
    folder, domain = PACKAGES[package]
    lines = []
    for file in sorted(folder.rglob("*.py")):
        if HAS_KERNELS.search(file.read_text()):
            name = ".".join(file.relative_to(folder).with_suffix("").parts)
            lines += entry(name, operators(f"{package}.{name}"), domain)
    return INTRODUCTION + "\n".join(lines) + "\n}\n"


def operators(module: str) -> list[str]:
    """Return the kernels of a module's table, or the operators that it looks at."""
    table = getattr(importlib.import_module(module), "table", None)
    if isinstance(table, OperatorTable):
        return list(table.names())
    keys = {key for key, found in SPECIALIZATIONS.items() if _of(module, [found])}
    keys |= {entry.place for entry in FUSIONS if _of(module, [entry.fusion])}
    return sorted(f"{domain or 'ai.onnx'}::{op_type}" for domain, op_type in keys)


def _of(module: str, functions: Iterable[Callable[..., Any]]) -> bool:
    return any(function.__module__ == module for function in functions)


def entry(module: str, kernels: Iterable[str], domain: str) -> list[str]:
    """Return the lines of a module's entry, as the formatter has them."""
    names = " ".join(name.removeprefix(f"{domain}::") for name in kernels)
    line = f'    "{module}": "{names}",'
    if len(line) <= 100:
        return [line]
    if len(names) <= 90:
        return [f'    "{module}": (', f'        "{names}"', "    ),"]
    rows = textwrap.wrap(names, 88, break_on_hyphens=False)
    middle = [f'        "{row} "' for row in rows[:-1]]
    return [f'    "{module}": (', *middle, f'        "{rows[-1]}"', "    ),"]


if __name__ == "__main__":
    main()
