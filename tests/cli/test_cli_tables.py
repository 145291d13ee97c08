"""Tables at several widths: nothing is wider, and no word is broken that has room."""

from __future__ import annotations

import pytest
from small import Cli

from tenonnx.cli.tables import columns, fitted, wrapped

HEADER = ("node", "operator", "time", "kernel")
ROWS = [
    (
        "encoder/layer.0/attention/self/query/MatMul",
        "MatMul + Relu",
        "16.2 µs",
        "tenonnx_cpu.affine",
    ),
    ("Softmax_13", "Softmax", "1.40 µs", "cpu.norms.specialize_softmax"),
]


def shown(width: int, *spare: str) -> tuple[list[str], list[str]]:
    return fitted(columns(HEADER, ROWS, ("time",), spare), width)


def test_a_table_that_fits_is_left_alone() -> None:
    lines, left_out = shown(120)
    assert len(lines) == 3
    assert not left_out
    assert lines[1].startswith(
        "encoder/layer.0/attention/self/query/MatMul  MatMul + Relu  16.2 µs"
    )
    assert lines[2].index("Softmax ") == lines[1].index("MatMul + Relu")


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
@pytest.mark.parametrize("spare", [(), ("kernel",), ("operator", "kernel")])
def test_nothing_is_wider_and_nothing_is_lost(width: int, spare: tuple[str, ...]) -> None:
    lines, left_out = shown(width, *spare)
    assert max(map(len, lines)) <= max(width, 2 + len("operator") + 2 + 28)
    text = "".join("".join(lines).split())
    if "  operator  MatMul + Relu" in lines:
        return  # blocks name the columns in every row
    kept = [at for at, name in enumerate(HEADER) if name not in left_out]
    cells = (str(row[at]) for row in (HEADER, *ROWS) for at in kept)
    assert len(text) == sum(len("".join(cell.split())) for cell in cells)


def test_words_stay_whole() -> None:
    lines, left_out = shown(60)
    assert not left_out
    assert "Softmax_13" in "\n".join(lines)
    assert "16.2 µs" in lines[1]
    assert not any(line.strip() in ("r", "ry/MatMul") for line in lines)
    assert wrapped("one two three", 8) == ["one two", "three"]
    assert wrapped("  indented words", 12) == ["  indented", "words"]
    assert wrapped("a/long/path/to/a/file", 10) == ["a/long/", "path/to/a/", "file"]
    assert wrapped("unbreakable", 4) == ["unbr", "eaka", "ble"]
    assert wrapped("", 4) == [""]


def test_columns_to_spare_go_first_and_are_named() -> None:
    lines, left_out = shown(70, "operator", "kernel")
    assert left_out == ["kernel"]
    assert lines[0].split() == ["node", "operator", "time"]


def test_what_fits_no_table_becomes_blocks() -> None:
    lines, left_out = shown(34)
    assert not left_out
    assert "  operator  MatMul + Relu" in lines
    assert "  time      1.40 µs" in lines


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("command", ["inspect", "providers", "plugins", "profile", "explain"])
def test_every_table_of_a_command_fits(
    cli: Cli, mlp: str, command: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    model = [] if command in ("providers", "plugins") else [mlp]
    result = cli(command, *model, *(["--runs", 1] if command == "profile" else []))
    assert result.exit_code == 0, result.output
    tables = [line for line in result.stdout.splitlines() if "  " in line.strip()]
    assert tables
    assert max(map(len, tables)) <= width
