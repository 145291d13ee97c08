"""Rows of every operator that both engines have, drawn from their declarations."""

from __future__ import annotations

import importlib
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
