from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from small import Cli
from typer.testing import CliRunner

from tenonnx.cli.app import COMMAND_DISTRIBUTIONS, app
from tenonnx.cli.failures import EXIT_CODE_MEANINGS
from tenonnx.cli.usage import _broken


def test_help_explains_every_exit_code(cli: Cli) -> None:
    result = cli("--help")
    assert result.exit_code == 0
    for code, meaning in EXIT_CODE_MEANINGS.items():
        assert f"{code:>3}  {meaning}" in result.stdout


def test_the_documentation_explains_every_exit_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for code, meaning in EXIT_CODE_MEANINGS.items():
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--level", "extreme"), "--level extreme: expected none, basic, extended, layout or all"),
        (("--runs", "x"), "--runs x: expected a whole number"),
        (("--runs", "0"), "--runs 0: expected at least 1"),
    ],
)
def test_wrong_values_are_told_in_plain_words(
    cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    result = cli("profile", "model.onnx", *arguments)
    assert result.exit_code == 2
    assert result.stderr == (f"error: {said}\nhint: `tenonnx profile --help` lists the options\n")


@pytest.mark.parametrize("command", ["inspect", "bench", "compare", "profile", "memory"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--disable-transform", "gleu"), "no transform 'gleu' to disable; did you mean 'gelu'?"),
        (("-p", "cup"), "unknown provider 'cup'; did you mean 'cpu'?"),
    ],
)
def test_unknown_names_are_told_before_any_work(
    cli: Cli, mlp: str, command: str, arguments: tuple[str, ...], said: str
) -> None:
    result = cli(command, mlp, *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {said}\n")


@pytest.mark.usefixtures("keeps_plans")
def test_hidden_files_are_no_suggestion(cli: Cli, mlp: str) -> None:
    result = cli("compile", mlp.replace("ml", "lm"))
    assert result.exit_code == 3
    assert result.stderr.endswith("hint: The folder has mlp.onnx.\n")


COMMANDS = [
    *("run", "inspect", "plugins", "providers", "doctor"),
    *("quantize", "bench", "compare", "profile", "memory", "compile", "convert"),
    *("warmup", "cache", "explain", "new", "serve"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_plain_words_and_an_example(cli: Cli, command: str) -> None:
    result = cli(command, "--help")
    assert result.exit_code == 0
    assert f"  tenonnx {command}" in result.stdout or f" {command}" in result.stdout
    assert "Example" in result.stdout
    for word in ("range>", "<str>", "<int>", "<float>", "x>=", "\\b"):
        assert word not in result.stdout


@pytest.mark.parametrize("command", [None, "generate", *COMMANDS])
def test_help_fits_the_terminal_and_loses_nothing(command: str | None) -> None:
    def text(width: int) -> str:
        words = [*filter(None, [command]), "--help"]
        result = CliRunner().invoke(app, words, prog_name="tenonnx", terminal_width=width)
        assert result.exit_code == 0
        assert max(map(len, result.stdout.splitlines())) <= width
        assert "..." not in result.stdout.partition("Commands:")[2]
        return "".join(result.stdout.replace(" \\\n", "").split())

    assert text(60) == text(80) == text(200)


def test_examples_are_continued_as_a_shell_reads_them() -> None:
    line = "  tenonnx explain a.onnx --top 3 --json | jq '.[] | .name' > \"b c.txt\""
    for width in range(20, 90):
        parts = list(_broken(line, width))
        assert shlex.split("\n".join(parts).replace("\\\n", "")) == shlex.split(line)
        assert max(map(len, parts)) <= max(width, 26)


def test_the_documentation_has_every_command(cli: Cli) -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    listed = cli("--help").stdout.partition("Commands:")[2].split("\n  ")
    names = [line.split()[0] for line in listed if line.strip() and not line.startswith(" ")]
    assert set(COMMANDS) <= set(names)
    for command in COMMANDS:
        assert f"| `{command}" in text


def test_a_plugin_that_is_left_out_says_who_left_it_out(cli: Cli, mlp: str) -> None:
    result = cli("--no-plugin", "fuse", "plugins")
    assert "blocked by --no-plugin fuse" in " ".join(result.stdout.split())
    refused = cli("--no-plugin", "cpu", "run", mlp, "-i", "random")
    assert refused.exit_code == 4
    assert "plug-ins not in use: cpu (blocked by --no-plugin cpu)" in refused.stderr


def test_a_command_whose_distribution_is_not_installed_names_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command, product in COMMAND_DISTRIBUTIONS.items():
        without = ("--no-plugin", command, command, "model.onnx")
        assert "No such command" in cli(*without).stderr
        with monkeypatch.context() as patch:
            patch.setattr("tenonnx.cli.app.version", lambda _: None)
            refused = cli(*without)
        assert refused.exit_code == 4
        assert f"of {product}, which is not installed" in refused.stderr
        assert f"pip install ./plugins/{product.replace('-', '_')}" in refused.stderr


@pytest.mark.parametrize("command", ["convert", "quantize"])
def test_files_are_replaced_only_if_asked(cli: Cli, mlp: str, command: str) -> None:
    missing = cli(command, mlp, "nowhere/out.onnx")
    assert missing.exit_code == 2
    assert "there is no folder nowhere" in missing.stderr
    assert cli(command, mlp, "out.onnx").exit_code == 0
    before = Path("out.onnx").stat().st_mtime_ns
    again = cli(command, mlp, "out.onnx")
    assert again.exit_code == 2
    assert "out.onnx is there already" in again.stderr
    assert Path("out.onnx").stat().st_mtime_ns == before
    assert cli(command, mlp, "out.onnx", "--force").exit_code == 0
    Path("out.onnx").unlink()
    Path("out.onnx.data").touch()
    assert cli(command, mlp, "out.onnx").exit_code == 2  # its weights would be replaced
