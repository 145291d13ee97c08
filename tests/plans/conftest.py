from __future__ import annotations

from pathlib import Path

import pytest

from tenonnx.operators import OperatorTable


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TENONNX_PLANS", "1")
    # While kernels compile in the background no plan is kept.
    monkeypatch.setenv("TENONNX_JIT", "wait")
    # Nor where a program, such as another test, has operators or plug-ins of its own.
    monkeypatch.setattr("tenonnx.custom_ops.GLOBAL", OperatorTable())
    monkeypatch.setattr("tenonnx.plugins.manager._default", None)
