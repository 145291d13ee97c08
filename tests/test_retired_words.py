"""Words: the check of words finds each that is retired, where it stands."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "words.py"))
WORDS = tomllib.loads(TOOL["LIST"].read_text("utf-8"))


def found(name: str, text: str) -> list[tuple[int, str]]:
    return list(TOOL["findings"](name, text, WORDS))


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("core/tenonnx/a.py", "x = 1\n# Inputs that lie alike.\n", 2),
        ("core/tenonnx/a.py", "# one\n# Inputs that lie\n# alike.\n", 2),
        ("core/tenonnx/a.py", "def f(crew_size): ...\n", 1),
        ("core/tenonnx/a.py", '"""Pythons Search for Garbage."""', 1),
        ("core/tenonnx/islands.py", "", 1),
        ("providers/rooms/cache.py", "", 1),
        ("docs/a.md", "The file\nthat these are of.\n", 2),
        ("core/tenonnx/a.py", "# A file.\n# The folder it is in.\n", 2),
        ("core/tenonnx/a.py", 'x = 1\n"""What it is."""\n', 2),
        ("core/tenonnx/a.py", 'x = 1\n"""How many there are."""\n', 2),
        ("core/tenonnx/a.py", "x = 1  # what it is made\n# of.\n", 1),
    ],
)
def test_a_retired_word_is_found_in_its_line(name: str, text: str, line: int) -> None:
    ((where, _),) = found(name, text)
    assert where == line


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("core/tenonnx/a.py", "# The rooms of a house: what is in them?\n"),
        ("docs/a.md", "Say `these are of.` and\n```text\nthese are of.\n```\n"),
        ("docs/islands.md", ""),
    ],
)
def test_other_words_are_let_through(name: str, text: str) -> None:
    assert not found(name, text)


def test_the_repository_uses_no_retired_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert TOOL["main"]() == 0, capsys.readouterr().out
