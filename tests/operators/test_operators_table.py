"""The list of operators in the documentation is what the tables say."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES

from tenonnx.errors import InvalidArgument
from tenonnx.operators import OperatorTable

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "operators_table.py"))


@pytest.mark.skipif(
    not all(case.is_known for case in CASES), reason="the installed onnx is older than the cases"
)
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
    listing = importlib.import_module(f"{package}.provider").KERNEL_OPERATORS
    for module, kernels in listing.items():
        table = importlib.import_module(f"{package}.{module}").table
        assert {f"ai.onnx::{kernel}" for kernel in kernels.split()} == set(table.names())


def test_a_kernel_that_passes_attributes_on_has_them_too() -> None:
    table = OperatorTable("test")

    @table.op("Scaled")
    def scaled(xp: Any, x: Any, *, alpha: float = 2.0, beta: float = 0.0) -> Any:
        return xp.multiply(x, alpha) + beta

    @table.op("Inner", like=[scaled], without=["beta"])
    @table.op("Shifted", like=[scaled])
    def shifted(xp: Any, x: Any, *, by: float = 1.0, **attributes: Any) -> Any:
        return scaled(xp, x, **attributes) + by

    table.op("Again")(shifted)

    @table.op("Outer", like=[shifted])
    def outer(xp: Any, x: Any, **attributes: Any) -> Any:
        return -shifted(xp, x, **attributes)

    found = {kernel.op_type: kernel for kernel in table}
    everything = {"alpha": 2.0, "beta": 0.0, "by": 1.0}
    assert all(found[name].attributes == everything for name in ("Shifted", "Again", "Outer"))
    assert found["Inner"].attributes == {"alpha": 2.0, "by": 1.0}
    assert found["Outer"].bind(np, {"alpha": 3.0}, 1)(5.0) == -16
    with pytest.raises(InvalidArgument, match=r"no attribute gamma .it has: alpha, beta, by"):
        found["Outer"].bind(np, {"gamma": 3.0}, 1)
