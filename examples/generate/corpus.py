"""The text to learn from: what ships with Python, in English, under the PSF license."""

from __future__ import annotations

import ast
import inspect
import os
import pydoc_data.topics
import re
from collections.abc import Iterator
from pathlib import Path

LEAST = 200
"""Characters of a docstring that says something."""

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data"}


def corpus() -> list[str]:
    """Return the language reference's chapters and the standard library's longer docstrings."""
    texts = [tidied(text) for text in pydoc_data.topics.topics.values()]
    library = Path(os.__file__).parent
    for path in sorted(library.rglob("*.py")):
        if not SKIPPED & {*path.relative_to(library).parts}:
            texts += docstrings(path)
    return list(dict.fromkeys(texts))


def docstrings(path: Path) -> Iterator[str]:
    """Yield a module's docstrings that are long enough."""
    try:
        tree = ast.parse(path.read_text())
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= LEAST and ">>>" not in text:
                yield tidied(inspect.cleandoc(text))


def tidied(text: str) -> str:
    """Return a text without underlines of headings, and with its paragraphs on one line each."""
    text = re.sub(r"\n[=*\-~^]{4,}\n", "\n", text)
    return re.sub(r"(?<=[a-z,;:])\n(?=[a-zA-Z\"])", " ", text).strip() + "\n"
