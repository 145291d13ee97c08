"""A program's process and modules are the same with tenonnx as without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guest.probe import MODULES, SCENARIOS
from guest.separate import MODEL, Program
from tenonnx_cpu.jit import library

PROBE = str(Path(__file__).parent / "probe.py")

PRESENT = sorted(SCENARIOS.keys() - {"absent"})


def report(program: Program, scenario: str) -> Any:
    """Return what a program reports after a scenario."""
    if scenario == "plan":
        program(PROBE, "session", MODEL)
    if scenario == "kernels" and library.find() is None:
        pytest.skip("there are no kernels here")
    variables = {"TENONNX_JIT": "1"} if scenario == "kernels" else {}
    return json.loads(program(PROBE, scenario, MODEL, **variables))


@pytest.fixture(params=PRESENT)
def both(request: pytest.FixtureRequest, program: Program) -> tuple[Any, Any]:
    """Report of the program without tenonnx, and with it."""
    return report(program, "absent"), report(program, request.param)


def test_process(both: tuple[Any, Any]) -> None:
    absent, present = (each["process"] for each in both)
    for each in (absent, present):
        each["environment"].pop("TENONNX_JIT")  # which one scenario is given
    different = {key: (absent[key], present[key]) for key in absent if absent[key] != present[key]}
    assert different == {}


def test_modules(both: tuple[Any, Any]) -> None:
    absent, present = (each["modules"] for each in both)
    for name in MODULES:
        of, names = absent[name].pop("names"), present[name].pop("names")
        assert present[name] == absent[name]
        assert {key: (of[key], names[key]) for key in of if of[key] != names[key]} == {}
        assert names.keys() == of.keys()


def test_loggers(both: tuple[Any, Any]) -> None:
    absent, present = (each["loggers"] for each in both)
    assert {name: present[name] for name in absent} == absent


def test_reports_tell_programs_apart(program: Program) -> None:
    """The comparison is of many names, and not of failures."""
    modules = report(program, "absent")["modules"]
    names = [facts for module in modules.values() for facts in module["names"].values()]
    assert len(names) > 1000
    assert sum(bool(facts.get("identity")) for facts in names) > 500
    assert sum("(" in facts.get("signature", "") for facts in names) > 500
