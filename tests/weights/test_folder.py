"""The folder of all that is kept for other processes."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from tenonnx.weights.folder import cache_root

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere it is platformdirs that says it"
)


@pytest.mark.parametrize("above", [None, "", "/somewhere/else"])
def test_the_folder_is_the_one_that_platformdirs_names(
    above: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.delenv("TENONNX_CACHE_DIR", raising=False)
    if above is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", above)
    assert cache_root() == platformdirs.user_cache_dir("tenonnx")
    monkeypatch.setenv("TENONNX_CACHE_DIR", "given")
    assert cache_root() == "given"


def test_a_user_without_a_home_has_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no entry: `~` stays what it is."""
    for name in ("TENONNX_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    expected = Path(tempfile.gettempdir(), f"cache-{os.getuid()}", "tenonnx")
    assert Path(cache_root()) == expected
