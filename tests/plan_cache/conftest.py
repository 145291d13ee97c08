from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _apart(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request.getfixturevalue("keeps_plans")
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path / "cache"))
