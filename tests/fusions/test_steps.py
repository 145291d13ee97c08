"""Every fusion of the CPU provider on kernels, on models that break what it may assume.

As in ``test_transforms``; transforms are off, so that fusions see what exporters write. A row is
named for the fusion's module and function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

import byte_rows
import step_rows
from compared import ALL, PLUGINS, base, deviations, differing, session
from drafts import Row, drawn
from test_transforms import EXAMPLES
from test_transforms import ROWS as TRANSFORMED

from tenonnx.planning.fusion import Fusions
from tenonnx_cpu import fuse
from tenonnx_cpu.conv import inverted_residual
from tenonnx_cpu.lazy_import import import_all

ROWS: dict[str, Row] = {**step_rows.ROWS, **byte_rows.ROWS}

OFF = [
    name
    for name, transform in PLUGINS.transforms.items()
    if transform.level != "required" and name != "lift-constants"
]

KEPT = {"int8.dense:fuse_weights": "fuse-dequantize-matmul"}
"""Rows whose fusion starts from what a transform makes."""

EXPANDED = "conv.inverted_residual:fuse_expanded"
"""A fusion that only some processors have."""


@pytest.fixture(autouse=True)
def on_kernels(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_cache is None  # it says otherwise, before
    monkeypatch.setenv("TENONNX_JIT", "1")


def off(name: str) -> list[str]:
    return [each for each in OFF if each != KEPT.get(name)]


def name_of(fusion: Any) -> str:
    return f"{fusion.__module__.removeprefix('tenonnx_cpu.')}:{fusion.__name__}"


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of fusions that took nodes."""
    import_all()
    names: set[str] = set()

    def watched(fusion: Any) -> Any:
        def attempt(node: Any, scope: Any) -> Any:
            found = fusion(node, scope)
            if found is not None:
                names.add(name_of(fusion))
            return found

        return attempt

    watching = Fusions[fuse.Scope]()
    for entry in fuse.FUSIONS:
        domain, name = entry.place
        add = watching.add(name, domain=domain, priority=entry.priority, takes=entry.takes)
        add(watched(entry.fusion))
    monkeypatch.setattr("tenonnx_cpu.fuse.FUSIONS", watching)
    return names


def test_every_fusion_has_a_row() -> None:
    import_all()
    assert {name_of(entry.fusion) for entry in fuse.FUSIONS} == ROWS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_what_exporters_write_is_fused(name: str, taken: set[str]) -> None:
    session(drawn(ROWS[name], base), "cpu", ALL, off(name))
    assert (name in taken) == (name != EXPANDED or inverted_residual.SUITED)


@pytest.mark.parametrize("name", ROWS)
def test_another_choice_gives_what_its_nodes_give(name: str) -> None:
    found = {what: differing(case, "cpu", off(name)) for what, case in deviations(ROWS[name])}
    assert not {what: each for what, each in found.items() if each}


def choosing(data: st.DataObject) -> Any:
    def choose(options: Sequence[Any]) -> Any:
        return options[data.draw(st.integers(0, len(options) - 1))]

    return choose


@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=EXAMPLES, derandomize=True)
@given(data=st.data())
def test_other_choices_give_what_their_nodes_give(name: str, data: st.DataObject) -> None:
    assert differing(drawn(ROWS[name], choosing(data)), "cpu", off(name)) is None


@pytest.mark.parametrize("name", TRANSFORMED)
def test_what_is_transformed_runs_on_kernels(name: str) -> None:
    assert differing(drawn(TRANSFORMED[name], base), "cpu") is None
