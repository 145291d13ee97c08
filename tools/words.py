"""Finds retired words in code and documents: ``python -m tools.words``.

The list is ``docs/retired_words.toml``; the glossary has the words to use.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs" / "retired_words.toml"
FOLDERS = (
    *(".ci", ".github", "bench", "core", "docs"),
    *("examples", "plugins", "providers", "tests", "tools"),
)
SUFFIXES = {".cff", ".cu", ".cuh", ".ini", ".md", ".py", ".toml", ".yml"}
LEFT_OUT = {"__pycache__", "results", LIST.name, "test_retired_words.py"}
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)

ABOUT = {
    "plugins/tenonnx_contrib/images.py": "operators on images",
    "plugins/tenonnx_generate/stream.py": "a stream of text",
    "providers/tenonnx_array/images.py": "operators on images",
}
"""Modules whose names are not retired, because of their subjects."""


def paths() -> list[Path]:
    """Return the files that are checked."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found += ROOT.iterdir()
    return sorted(p for p in found if p.suffix in SUFFIXES and LEFT_OUT.isdisjoint(p.parts))


def compiled(patterns: dict[str, str]) -> list[tuple[re.Pattern[str], str]]:
    """Return patterns in which a space stands for any white space and a comment's line break."""
    return [
        (re.compile(pattern.replace(" ", r"\s+(?:#:? )?"), re.MULTILINE), better)
        for pattern, better in patterns.items()
    ]


def without_code(text: str) -> str:
    """Return a document with blanks for its code; lines keep their numbers."""
    return CODE.sub(lambda found: re.sub(r"[^\n]", "x", found.group()), text)


def findings(name: str, text: str, words: dict[str, dict[str, str]]) -> Iterator[tuple[int, str]]:
    """Yield line and complaint for every retired word of a file and of its path."""
    parts = Path(name).with_suffix("").parts
    for part in parts if name.endswith((".py", ".cu")) and name not in ABOUT else ():
        if part in words["modules"]:
            yield 1, f"the module's name {part!r}; call it {words['modules'][part]}"
    document = name.endswith(".md")
    prose = (without_code(text) if document else text).lower()
    checks = [(text.lower(), compiled(words["texts"])), (prose, compiled(words["sentences"]))]
    if document:
        checks.append((prose, compiled(words["documents"])))
    for checked, patterns in checks:
        for pattern, better in patterns:
            for found in pattern.finditer(checked):
                said = " ".join(found.group().split())
                yield checked.count("\n", 0, found.start()) + 1, f"{said!r}; write: {better}"


def main() -> int:
    """Print what is found, one a line, and return 1 if there is anything."""
    words = tomllib.loads(LIST.read_text("utf-8"))
    status = 0
    for path in paths():
        name = path.relative_to(ROOT).as_posix()
        for line, complaint in findings(name, path.read_text("utf-8"), words):
            print(f"{name}:{line}: {complaint}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
