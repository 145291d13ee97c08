"""Installs the least versions that may be: ``python tools/lowest.py install ...``.

``tox -e oldest`` installs with it, in place of ``pip install``. This tree's distributions, their
extras and the tests' group all have their least versions, in each of tox's calls of pip alike.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

# A requirement with a least version, up to it.
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[.*?\])?\s*>=\s*(?P<least>[\w.]+)")


def requirements() -> Iterator[str]:
    """Yield what this tree's distributions, their extras and groups ``test`` require of others."""
    for file in (ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")):
        pyproject = tomllib.loads(file.read_text("utf-8"))
        project = pyproject["project"]
        extras = project.get("optional-dependencies", {}).values()
        group = pyproject.get("dependency-groups", {}).get("test", [])
        for found in (project["dependencies"], *extras, group):
            yield from (entry for entry in found if not entry.startswith("tenonnx"))


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
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lowest.txt")
        file.write_text("\n".join(constraints(requirements())), "utf-8")
        pip = [sys.executable, "-m", "pip", *sys.argv[1:], "--constraint", str(file)]
        sys.exit(subprocess.run(pip).returncode)


if __name__ == "__main__":
    main()
