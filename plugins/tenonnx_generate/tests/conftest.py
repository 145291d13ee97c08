from __future__ import annotations

from pathlib import Path

import pytest

from folders import write_folder
from tenonnx_generate import Model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("generate") / "folder")


@pytest.fixture(scope="session")
def model(folder: Path) -> Model:
    return Model(folder)
