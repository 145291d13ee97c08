"""All of ``onnx.backend.test`` through the ONNX backend interface.

``--provider cuda`` (default cpu) picks the provider; ``gaps/<provider>.txt`` lists the cases that
are known to fail. One that passes all the same fails the run, so the lists can only shrink.

Every case runs from a parsed model with all transforms on, and from bytes with none. ``--form``
and ``--level`` pick other combinations; ``all`` stands for every one.
"""

from __future__ import annotations

import itertools
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import suite

import tenonnx

GAPS = Path(__file__).parent / "gaps"
LEVELS = {"0": 0, "99": 99}
USUAL = [("proto", "99"), ("bytes", "0")]


def _known_gaps(device: str) -> dict[str, str]:
    lines = (GAPS / f"{device}.txt").read_text().splitlines()
    entries = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return dict(entries)


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
    assert not gaps.keys() - cases.keys(), "gaps for cases that do not exist"
    ways = list(_ways(options.form, options.level))
    parameters = [
        pytest.param(
            function,
            form,
            LEVELS[level],
            id=f"{name}-{form}-{level}",
            marks=[pytest.mark.xfail(strict=True, reason=gaps[name])] if name in gaps else [],
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
