"""Writes the listings that say which module has which kernels, so that few are imported."""

from __future__ import annotations

import importlib
import re
import textwrap
from pathlib import Path

from tenonnx.operators import OperatorTable

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "tenonnx_array": (ROOT / "providers" / "tenonnx_array", "ai.onnx"),
    "tenonnx_contrib": (ROOT / "plugins" / "tenonnx_contrib", "com.microsoft"),
}
"""Where a package is, and the domain of the kernels that are listed without one."""

DEFINES_A_TABLE = re.compile(r"^table\b.*= ", re.MULTILINE)

INTRODUCTION = '''\
"""Which module has which kernels; modules are imported when one of theirs is first needed.

Written by `python tools/kernel_listing.py`; a test checks that it is up to date.
"""

from __future__ import annotations

from typing import Final

LISTING: Final = {
'''


def main() -> None:
    """Writes the modules."""
    for package, (folder, _) in PACKAGES.items():
        (folder / "listing.py").write_text(listing(package))


def listing(package: str) -> str:
    """Returns the text of a package's listing."""
    folder, domain = PACKAGES[package]
    lines = []
    for file in sorted(folder.rglob("*.py")):
        if DEFINES_A_TABLE.search(file.read_text()):
            name = ".".join(file.relative_to(folder).with_suffix("").parts)
            lines += entry(name, importlib.import_module(f"{package}.{name}").table, domain)
    return INTRODUCTION + "\n".join(lines) + "\n}\n"


def entry(module: str, table: OperatorTable, domain: str) -> list[str]:
    """Returns the lines of a module's entry, as the formatter has them."""
    names = " ".join(name.removeprefix(f"{domain}::") for name in table.names())
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
