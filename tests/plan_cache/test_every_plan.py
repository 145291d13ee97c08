"""Plans of exported models are cached: a call whose class has no mark loses that silently."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_models import is_kept

import tenonnx

EXPORTS = Path(__file__).parents[1] / "exports"


@pytest.mark.parametrize("model", sorted(path.stem for path in EXPORTS.glob("*.onnx")))
@pytest.mark.usefixtures("keeps_plans")
@pytest.mark.parametrize("mode", ["0", "1"])
def test_the_plan_is_cached(model: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_JIT", mode)
    path = EXPORTS / f"{model}.onnx"
    assert tenonnx.InferenceSession(path).load_times.uncached == ""
    assert is_kept(tenonnx.InferenceSession(path))
