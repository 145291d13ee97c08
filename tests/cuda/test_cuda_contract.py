"""The contract of providers, tested with the CUDA provider on a simulated device."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from case import Case, assert_equal
from cases import CASES, feeds_of, model_of
from emulated import ArraysOnly, EmulatedProvider, session

from tenonnx.provider import Provider
from tenonnx.testing import ProviderTests
from tenonnx_array import TABLE

GAPS = Path(__file__).parents[1] / "conformance" / "gaps" / "cpu.txt"
LINES = [line.split(maxsplit=1) for line in GAPS.read_text().splitlines() if line]
DOCUMENT = Path(__file__).parents[2] / "docs" / "cuda.md"


EVERY = "TENONNX_CUDA_EVERY_CASE" in os.environ
"""All of ONNX's cases; else some of them, as they take a minute together."""


class TestEmulated(ProviderTests):
    provider: ClassVar[str | type[Provider]] = EmulatedProvider
    options: ClassVar[Mapping[str, Any]] = {"use_tf32": False}  # the suite's answers are float32's
    cases: ClassVar[str] = "*" if EVERY else "*[kw03]"
    gaps: ClassVar[Mapping[str, str]] = {
        name.removesuffix("_cpu"): why
        for name, why in LINES
        if name.startswith("test_") and ":" not in name and EVERY  # one level alone is plain
    }
    frameworks: ClassVar[tuple[str, ...]] = ("cupy", "cupyx")
    copies: ClassVar[str] = "the device is the host's memory"


SOME = CASES if EVERY else CASES[::8]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", SOME, ids=lambda case: case.id)
def test_pair(case: Case) -> None:
    """Every operator at every version that ONNX's suite leaves out."""
    opened = session(model_of(case), ArraysOnly, graph_optimization_level=0)
    outputs: Any = opened.run(None, feeds_of(case))
    for actual, expected in zip(outputs, case.answers(), strict=True):
        assert_equal(actual, expected, case.rtol, case.atol)


def test_what_runs_on_the_host_is_documented() -> None:
    """Every operator whose kernel is the host's is named, and none that is not."""
    section = DOCUMENT.read_text().split("## What runs on the CPU")[1].split("\n## ")[0]
    named = set(section.split("kernels run on the host")[0].rpartition("\n| ")[2].split("`")[1::2])
    assert named == {kernel.op_type for kernel in TABLE if kernel.host == "all"}
