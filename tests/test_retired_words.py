"""Words: the check finds each that is retired, where it stands, and names with many meanings."""

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


def repeated(*texts: str) -> list[str]:
    modules = {f"core/package/m{n}.py": text for n, text in enumerate(texts)}
    return list(TOOL["repeated"](modules))


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["MOST = 1", "MOST = 2", "MOST: int = 3"], "core/package/m2.py: the constant MOST of 3"),
        (["_MOST = 1"] * 3, "core/package/m2.py: the constant _MOST of 3 files"),
        (["class Plan: ..."] * 2, "core/package/m1.py: package has another class Plan"),
        (["class Plan: ...", "def f():\n class Plan: ..."], "core/package/m1.py: package has"),
    ],
)
def test_a_name_with_many_meanings_is_found(texts: list[str], complaint: str) -> None:
    (found,) = repeated(*texts)
    assert found.startswith(complaint)


@pytest.mark.parametrize(
    "texts",
    [
        ["MOST = 1", "MOST = 2", "from .m0 import MOST", "def f():\n MOST = 3"],
        ["T = TypeVar('T')"] * 3,
        ["HELP = 'Runs a model.'"] * 3,
        ["class Plan: ...", "from .m0 import Plan"],
    ],
)
def test_names_with_one_meaning_are_let_through(texts: list[str]) -> None:
    assert not repeated(*texts)


def test_classes_of_two_packages_may_share_a_name() -> None:
    modules = dict.fromkeys(["core/a/m.py", "plugins/b/m.py"], "class Plan: ...")
    assert not list(TOOL["repeated"](modules))
