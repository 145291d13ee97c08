from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def onnx_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the suite may write the data that it generates for its real models."""
    monkeypatch.setenv("ONNX_MODELS", str(tmp_path))
    return tmp_path
