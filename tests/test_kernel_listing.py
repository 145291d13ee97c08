"""The listings of kernels are what the modules have, and save their imports."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tenonnx.operators import OperatorTable

ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "kernel_listing.py"))


@pytest.mark.parametrize("package", TOOL["PACKAGES"])
def test_a_listing_is_up_to_date(package: str) -> None:
    folder, _ = TOOL["PACKAGES"][package]
    assert (folder / "listing.py").read_text() == TOOL["listing"](package), (
        "run python tools/kernel_listing.py"
    )


@pytest.mark.parametrize("package", ["tenonnx_array", "tenonnx_contrib"])
def test_every_kernel_that_is_listed_is_there_once(package: str) -> None:
    folder, domain = TOOL["PACKAGES"][package]
    listing = runpy.run_path(str(folder / "listing.py"))["LISTING"]
    table = OperatorTable.listed(package, listing, domain)
    names = [
        f"{'' if '::' in name else domain + '::'}{name}"
        for kernels in listing.values()
        for name in kernels.split()
    ]
    assert sorted(names) == sorted(str(kernel) for kernel in table)
    assert len(names) == len(table)


def test_a_kernel_is_found_in_the_module_that_has_it() -> None:
    from tenonnx_array import TABLE
    from tenonnx_array.softmax import table

    found = TABLE.find("ai.onnx", "Softmax", 22)
    assert found is not None
    assert found is table.find("", "Softmax", 22)
    assert (str(found), TABLE.find("", "Softmax", 0)) == ("ai.onnx::Softmax-13", None)


def test_modules_are_imported_for_what_a_model_needs() -> None:
    code = """
import sys
import tenonnx

tenonnx.InferenceSession("examples/digits/digits.onnx", providers=["cpu"])
print(*(name for name in sys.modules if name.startswith("tenonnx_")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "tenonnx_array.conv" in loaded
    assert loaded.isdisjoint(
        {"tenonnx_array.ml.trees", "tenonnx_contrib.beam_search", "tenonnx_cpu.int8.conv"}
    )
