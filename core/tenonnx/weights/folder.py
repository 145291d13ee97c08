"""The folder of all that is kept for other processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_root() -> Path:
    """Returns the folder: ``TENONNX_CACHE_DIR``, or ``tenonnx`` in the user's cache folder."""
    if given := os.environ.get("TENONNX_CACHE_DIR"):
        return Path(given)
    if sys.platform == "linux":  # as platformdirs says, sooner than it is imported
        caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (caches if caches.is_absolute() else Path("~/.cache").expanduser()) / "tenonnx"
    import platformdirs

    return Path(platformdirs.user_cache_dir("tenonnx"))
