from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--provider", default="cpu", help="provider that the conformance suite runs on"
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Derived weights of a test go to a folder of its own."""
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path / "cache"))
