from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from places import FILE_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(np.random.default_rng(0).bytes(FILE_BYTES))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of side files."""
    return tmp_path / "side"
