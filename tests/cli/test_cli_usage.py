from __future__ import annotations

from pathlib import Path

import pytest
from small import Cli

from tenonnx.cli.failures import MEANINGS


def test_help_explains_every_exit_code(cli: Cli) -> None:
    result = cli("--help")
    assert result.exit_code == 0
    for code, meaning in MEANINGS.items():
        assert f"{code:>3}  {meaning}" in result.stdout


def test_the_documentation_explains_every_exit_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |" in text


def test_unknown_subcommands_get_a_suggestion(cli: Cli) -> None:
    result = cli("insepct", "model.onnx")
    assert result.exit_code == 2
    assert "Did you mean 'inspect'?" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("run",)])
def test_too_few_arguments(cli: Cli, arguments: tuple[str, ...]) -> None:
    result = cli(*arguments)
    assert result.exit_code == 2
    assert "Usage: " in result.output
