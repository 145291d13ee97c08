"""Operators of com.microsoft in chunks and pieces: together they are what onnxruntime answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from rows import Row, recorded
from test_recorded import test_row as check_row

from small_chunks import cut_all_inputs, make_chunks_small
from tenonnx_array import chunks
from tenonnx_array.provider import RULE_OF

ROWS = [row for row in recorded(Path(__file__).parent) if f"{row.domain}::{row.op}" in RULE_OF]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_chunks_are_the_whole(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_JIT", "0")
    make_chunks_small(monkeypatch)
    cut_all_inputs(monkeypatch)
    seen: list[int] = []
    in_chunks = chunks.in_chunks
    monkeypatch.setattr(chunks, "in_chunks", lambda *given: seen.append(1) or in_chunks(*given))
    check_row(row)
    assert seen
