"""The list of operators in the documentation is what the tables say."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path

import pytest

from tenonnx.operators import OperatorTable

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "operators_table.py"))


def test_the_document_is_up_to_date() -> None:
    assert (ROOT / "docs" / "operators.md").read_text() == TOOL["document"](), (
        "run python tools/operators_table.py"
    )


def test_no_operator_is_without_a_way_to_run() -> None:
    assert "none" not in TOOL["document"]()


def test_ways() -> None:
    table = OperatorTable().update(TOOL["TABLE"])
    own = OperatorTable()
    own.rows({"Neg": "negative"}, since=13)
    table.update(own)
    way, summary = TOOL["way"], TOOL["summary"]
    assert way("", "Neg", 6, TOOL["TABLE"]) != "own kernel" == way("", "Neg", 13, table)
    assert way("", "Loop", 11, table) == "control flow"
    assert way("ai.onnx.ml", "ZipMap", 1, table) == "host"
    assert summary({1: "kernel", 6: "kernel", 13: "body"}) == "kernel, body from 13"


@pytest.mark.parametrize("package", ["tenonnx_jax", "tenonnx_torch"])
def test_listed_kernels_are_those_that_modules_have(package: str) -> None:
    listing = importlib.import_module(f"{package}.provider").KERNELS
    for module, kernels in listing.items():
        table = importlib.import_module(f"{package}.{module}").table
        assert {f"ai.onnx::{kernel}" for kernel in kernels.split()} == set(table.names())
