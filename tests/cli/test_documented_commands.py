"""Commands that documents show have subcommands and options that there are."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from tenonnx.cli.app import app
from test_docs import DOCUMENTS, FENCE, PROJECTS, commands, name_of

INLINE = re.compile(r"`(tenonnx [^`]+)`")
SEPARATORS = re.compile(r" && | \| |; |`| # ")


def options_of(command: Any) -> set[str]:
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts)}


def known_options() -> dict[str, set[str]]:
    """Return the options of every subcommand, those of the built-in plug-ins among them."""
    given: list[Any] = [app]
    for found in (project["project"].get("entry-points", {}) for project in PROJECTS):
        for module in (found.get("tenonnx", {}) | found.get("tenonnx.commands", {})).values():
            register = getattr(importlib.import_module(module), "register_commands", None)
            if register is not None:
                register(given.append)
    groups = [
        typer.main.get_group(each if isinstance(each, typer.Typer) else each()) for each in given
    ]
    main, *_ = groups
    return {
        name: options_of(command) | options_of(main) | {"-h", "--help"}
        for group in groups
        for name, command in group.commands.items()
    }


def shown(text: str, listed: list[str]) -> Iterator[list[str]]:
    """Yield the words of every command of tenonnx's that has a subcommand."""
    for line in (*listed, *INLINE.findall(FENCE.sub("", text))):
        for part in SEPARATORS.split(line):
            words = [word for word in part.split() if not re.match(r"[A-Z_]+=", word)]
            if words and words[0].endswith("tenonnx"):
                yield words[1:]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_have_options_that_there_are(path: Any, known: dict[str, set[str]]) -> None:
    for words in shown(path.read_text(), commands(path)):
        subcommand = next((word for word in words if word in known), None)
        plain = [word for word in words if not word.startswith("-")]
        if subcommand is None:
            assert not plain or "..." in plain or plain[0].endswith(".py"), words
            continue
        options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
        assert set(options) <= known[subcommand], words


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    return known_options()
