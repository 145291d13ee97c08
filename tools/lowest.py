"""Installs the least versions that pyproject.toml allows: ``python tools/lowest.py install ...``.

``tox -e oldest`` installs with it, in place of ``pip install``. The package itself, its extras and
the tests' group all have their least versions, in each of tox's calls of pip alike.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[.*?\])?\s*>=\s*(?P<least>[\w.]+)")
"""A requirement with a least version, up to it."""


def requirements(pyproject: dict[str, Any]) -> Iterator[str]:
    """Yield the requirements of a project, of its extras and of its group ``test``."""
    project = pyproject["project"]
    yield from project["dependencies"]
    for extra in project["optional-dependencies"].values():
        yield from extra
    yield from pyproject["dependency-groups"]["test"]


def constraints(listed: Iterable[str]) -> list[str]:
    """Return a constraint ``name==least`` for each distribution, where ``listed`` has its least.

    If several requirements name a distribution, the greatest of their least versions counts.

    Raises:
        ValueError: A requirement has no least version.
    """
    found: dict[str, str] = {}
    for requirement in listed:
        match = REQUIREMENT.match(requirement)
        if match is None:
            raise ValueError(f"{requirement!r} has no least version: write name>=version")
        name, least = match["name"], match["least"]
        found[name] = max(found.get(name, least), least, key=_numbers)
    return [f"{name}=={least}" for name, least in sorted(found.items())]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def main() -> None:
    """Run pip with its arguments and with the constraints."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lowest.txt")
        file.write_text("\n".join(constraints(requirements(pyproject))), "utf-8")
        pip = [sys.executable, "-m", "pip", *sys.argv[1:], "--constraint", str(file)]
        sys.exit(subprocess.run(pip).returncode)


if __name__ == "__main__":
    main()
