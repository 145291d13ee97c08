"""All of ``onnx.backend.test`` through the ONNX backend interface.

``--provider cuda`` (default cpu) picks the provider; ``gaps/<provider>.txt`` lists the cases that
are known to fail. One that passes all the same fails the run, so the lists can only shrink.
"""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import tenonnx.backend

GAPS = Path(__file__).parent / "gaps"


def _cases(device: str) -> dict[str, Callable[..., None]]:
    """Every test function of the suite for a device, by name."""
    with warnings.catch_warnings():
        # The suite's own data generation overflows and divides by zero on purpose.
        warnings.simplefilter("ignore")
        from onnx.backend.test import BackendTest

        suites = BackendTest(tenonnx.backend, __name__).test_cases.values()
    suffix = f"_{device}"
    return {
        name: function
        for suite in suites
        for name, function in vars(suite).items()
        if name.startswith("test_") and name.endswith(suffix)
    }


def _known_gaps(device: str) -> dict[str, str]:
    lines = (GAPS / f"{device}.txt").read_text().splitlines()
    entries = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return dict(entries)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    device = metafunc.config.getoption("--provider")
    cases, gaps = _cases(device), _known_gaps(device)
    assert not gaps.keys() - cases.keys(), "gaps for cases that do not exist"
    parameters = [
        pytest.param(
            function,
            id=name,
            marks=[pytest.mark.xfail(strict=True, reason=gaps[name])] if name in gaps else [],
        )
        for name, function in sorted(cases.items())
    ]
    metafunc.parametrize("case", parameters)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_case(case: Callable[..., None], onnx_models: Path) -> None:
    assert onnx_models.is_dir()
    case(unittest.TestCase())
