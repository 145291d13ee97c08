"""Rows of every operator that both engines have, drawn from their declarations."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])


def module(name: str) -> Any:
    return importlib.import_module(f"bench.operators.{name}")


def test_a_call_is_measured_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    way = ["--kinds", "int8", "--sizes", "small", "--seconds", "0.0001", "--turns", "1"]
    for name in ("Neg", "Add"):
        module("__main__").main(["--only", name, *way, "--output", str(tmp_path)])
    _, rows = module("report").read(tmp_path / "operators.json")
    assert {(row.operator, row.kind, row.form, row.threads) for row in rows} == {
        (operator, "int8", form, threads)
        for threads in (0, 1)
        for operator, form in [
            ("Neg", ""),
            *(("Add", form) for form in ("", "by row", "by column", "by number")),
        ]
    }
    assert all(row.ratio > 0 and not row.note for row in rows)
    assert {each.name for each in module("report").figures(tmp_path / "operators.json")} == {
        "Neg",
        "Add",
    }
    assert "| all rows | 8 |" in capsys.readouterr().out


def test_every_form_names_an_operator_of_both() -> None:
    from tenonnx.operators import OperatorTable
    from tenonnx_array import TABLE
    from tenonnx_contrib.listing import LISTING

    contrib = OperatorTable.listed("tenonnx_contrib", LISTING, "com.microsoft")
    known = {each.title for each in module("declared").operators(TABLE.copy().update(contrib))}
    assert known > {"Add", "ai.onnx.ml.Scaler", "com.microsoft.QLinearAdd"}
    assert module("forms").FORMS.keys() - known == set()


def test_no_operand_is_larger_than_memory() -> None:
    draw = module("draw")
    draw.Form("", [(1 << 12, 1 << 12)])
    for large in (
        (1 << 13, 1 << 12),
        draw.Constant((100, 400, 250, 250)),
        draw.Places((1 << 25,), 4),
    ):
        with pytest.raises(ValueError, match="more than 16,777,216 elements"):
            draw.Form("", [None, large])


def test_every_operator_has_forms_or_is_refused() -> None:
    draw, forms = module("draw"), module("forms")
    refused = set()
    for operator in module("declared").known():
        for size in draw.SIZES.values():
            try:
                assert forms.forms_of(operator, size), operator.title
            except ValueError:
                refused.add(operator.title)
    assert "com.microsoft.AttnLSTM" in refused
    assert len(refused) < 20, refused


def test_what_takes_too_long_is_left_out_and_told(tmp_path: Path) -> None:
    way = ["--only", "Neg", "--longest", "0.01", "--output", str(tmp_path)]
    module("__main__").main(way)
    _, rows = module("report").read(tmp_path / "operators.json")
    assert [row.note for row in rows] == ["ended: takes more than 0.01 s"]


def test_rows_before_the_end_of_a_process_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    main, row = module("__main__"), module("measure").Row
    kept = row("Neg", "int8", "", "small", 1, 1.0, 2.0, 2.0, 2.0)
    begun = row("Neg", "int8", "", "large", 1)
    script = "import os; from bench.child import tell\n"
    script += "".join(f"tell('row', **{each.as_dict()})\n" for each in (kept, begun))
    monkeypatch.setattr(main, "COMMAND", (sys.executable, "-c", f"{script}os._exit(1)"))
    job = module("child").Job("Neg", [], ["small", "large"], [1], 0.001, 1)
    first, last = main.measured(job, 60)
    assert first == kept
    assert last.key == begun.key
    assert last.note == "ended: the process ended"
