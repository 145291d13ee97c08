"""All of ``onnx.backend.test`` through the ONNX backend interface.

``--provider cuda`` (default cpu) picks the provider; ``gaps/<provider>.txt`` lists the cases that
are known to fail, or to fail at a level: ``NAME:0``. One that passes all the same fails the run,
so the lists can only shrink.
``gaps/uneven_products.txt`` lists those that fail where numpy rounds equal rows otherwise.

Every case runs from a parsed model with all transforms on, and from bytes with none. ``--form``
and ``--level`` pick other combinations; ``all`` stands for every one.
"""

from __future__ import annotations

import itertools
import os
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import suite

import tenonnx
from tenonnx.testing.nodes import CORRECTED

GAPS = Path(__file__).parent / "gaps"
LEVELS = {"0": 0, "99": 99}
USUAL = [("proto", "99"), ("bytes", "0")]


def _known_gaps(name: str) -> dict[str, str]:
    lines = (GAPS / f"{name}.txt").read_text().splitlines()
    entries = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return dict(entries)


def _equal_rows_differ() -> bool:
    matrix = np.random.default_rng(0).random((512, 196), np.float32)
    product = np.full((1000, 512), 0.02, np.float32) @ matrix
    return bool((product != product[0]).any())


def _marks(
    name: str, level: str, gaps: dict[str, str], uneven: dict[str, str]
) -> list[pytest.MarkDecorator]:
    if name in uneven:
        reason = f"equal rows of numpy's products differ: {uneven[name]}"
        alone = os.environ.get("TENONNX_JIT", "0") == "0"  # some of the products are kernels' else
        return [pytest.mark.xfail(strict=alone, reason=reason)]
    reason = gaps.get(name) or gaps.get(f"{name}:{level}")
    return [pytest.mark.xfail(strict=True, reason=reason)] if reason else []


def _ways(form: str, level: str) -> Iterator[tuple[str, str]]:
    if not form and not level:
        yield from USUAL
        return
    forms = list(suite.FORMS) if form == "all" else [form or "proto"]
    levels = list(LEVELS) if level == "all" else [level or "99"]
    yield from itertools.product(forms, levels)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    options = metafunc.config.option
    cases, gaps = suite.cases(options.provider), _known_gaps(options.provider)
    gaps |= {f"{name}_{options.provider}": why for name, why in CORRECTED.items()}
    named = {name.partition(":")[0] for name in gaps}
    if onnx.defs.onnx_opset_version() >= 28:  # older releases have fewer cases
        assert not named - cases.keys(), "gaps for cases that do not exist"
    uneven = _known_gaps("uneven_products") if _equal_rows_differ() else {}
    ways = list(_ways(options.form, options.level))
    parameters = [
        pytest.param(
            function,
            form,
            LEVELS[level],
            id=f"{name}-{form}-{level}",
            marks=_marks(name, level, gaps, uneven),
        )
        for name, function in sorted(cases.items())
        for form, level in ways
    ]
    metafunc.parametrize(("case", "form", "level"), parameters)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_case(case: Callable[..., None], form: str, level: int, onnx_models: Path) -> None:
    # Free draws would now and then be those that a gap's case expects.
    tenonnx.set_seed(0)
    case(unittest.TestCase(), form=form, level=level, folder=onnx_models)
