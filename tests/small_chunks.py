"""Chunks of a few elements, so that small inputs are cut as large ones are."""

from __future__ import annotations

from typing import Any

import pytest

from tenonnx_array import chunk_rules, chunks, piecewise, provider, sorting


def make_chunks_small(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Makes chunks and pieces small; returns a set that tells which operators are cut."""
    found: set[str] = set()
    rule_of = chunks.cut_of

    def cut_of(given: Any, inputs: Any, rule: str) -> Any:
        cut = rule_of(given, inputs, rule)
        if cut is None:
            return None
        found.add(given.op_type)
        return cut._replace(longest=3)

    monkeypatch.setattr(chunks, "cut_of", cut_of)
    for module in (chunk_rules, piecewise, sorting):
        monkeypatch.setattr(module, "LONGEST", 3)
    monkeypatch.setattr(sorting, "OBJECTS", 3)
    monkeypatch.setattr(chunks, "PIECEWISE", 3)
    return found


def cut_all_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has steps that are compiled from now on cut the smallest inputs, too."""
    for name, count in {"SMALL": 0, "FEW": 0, "MANY": -1}.items():
        monkeypatch.setattr(provider, name, count)
