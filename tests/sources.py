"""The folders of this tree from which packages are imported."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]

PRODUCTS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
"""Folders of the distributions beside the runtime, each with a pyproject.toml of its own."""

SOURCES = [
    *(ROOT / name for name in ("core", "providers", "plugins")),
    *(product / "src" for product in PRODUCTS),
]

PACKAGES = {
    path.parent.name: path.parent for root in SOURCES for path in root.glob("*/__init__.py")
}
"""The folder of each package, by its name."""


def modules() -> list[Path]:
    """Return the files of all packages."""
    return sorted(path for package in PACKAGES.values() for path in package.rglob("*.py"))
