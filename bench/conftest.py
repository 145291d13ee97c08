"""Options and fixtures of the suites."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# A test that has not come to an end by then has failed.
SECONDS = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="small models")


@pytest.fixture(scope="session")
def quick(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--quick"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Derived weights go to a folder of the test's own."""
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def own_time() -> Iterator[None]:
    """Stop a test that takes for ever, so that the others are measured."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
