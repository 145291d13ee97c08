"""Functions that kernels share: declared once, with variants by key."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

pytest.importorskip("numba")

from llvmlite import ir

from tenonnx_cpu.jit.vectors import shared as declaring
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.shared import shared, under
from tenonnx_cpu.jit.vectors.vector import F32, F64, I64


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Store a number times a constant: two constants for each of two types."""
    monkeypatch.setattr(declaring, "GROUPS", {})
    kinds = {"f32": F32, "f64": F64}

    @shared("tenonnx_scaled", [(k, n) for k in kinds for n in (2, 3)], last=(F32,))
    def scaled(b: Any, kind: str, times: int, /, place: Any, x: Any) -> None:
        wide = x if kind == "f32" else b.fpext(x, F64)
        v.store(b, b.fmul(wide, v.constant(kinds[kind], times)), place)

    return scaled


def test_a_variant_is_written_for_every_key(scaled: Any) -> None:
    assert list(scaled.functions) == [("f32", 2), ("f32", 3), ("f64", 2), ("f64", 3)]
    function = scaled.functions["f64", 3]
    assert function.name == "tenonnx_scaled_f64_3"
    assert list(function.kind.args) == [I64, F32]
    module = ir.Module()
    function.define(module)
    assert "fmul double" in str(module)
    assert "0x4008000000000000" in str(module)


def test_what_is_under_a_key_is_called_by_the_rest_of_it(scaled: Any) -> None:
    doubles = under(scaled, "f64")
    assert list(doubles.functions) == [(2,), (3,)]
    assert doubles.functions[3,] is scaled.functions["f64", 3]
    assert list(inspect.signature(doubles).parameters)[1:] == ["key_0", "place", "x"]
    assert doubles.__qualname__ != under(scaled, "f32").__qualname__
