"""``tenonnx cache`` tells what is kept on disk, and deletes just that."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from small import Cli

from tenonnx.weights.sidefile import SideFiles


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with a side file, two kernels' files and a file of somebody else's."""
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TENONNX_KERNELS_DIR", str(tmp_path / "kernels"))
    SideFiles(tmp_path / "weights").write(
        "key", "name", ir.DataType.FLOAT, (1024,), lambda out: np.copyto(out, 1)
    )
    kernels = tmp_path / "kernels"
    (kernels / "objects").mkdir(parents=True)
    for name in ("objects/a.o", "b.so"):
        (kernels / name).write_bytes(bytes(100))
    os.utime(kernels / "objects" / "a.o", (0, 0))
    (tmp_path / "weights" / "notes.txt").write_text("mine")
    return tmp_path


def test_what_is_there_is_listed_and_deleted_on_request(cli: Cli, root: Path) -> None:
    weights, kernels = json.loads(cli("cache", "--json").stdout)["kinds"]
    assert (weights["kind"], weights["files"], weights["bytes"]) == ("derived weights", 1, 8192)
    assert (kernels["files"], kernels["bytes"]) == (2, 200)
    assert kernels["folder"] == str(root / "kernels")
    assert kernels["unused_days"] > 10_000
    text = cli("cache").stdout
    assert "derived weights" in text
    assert "kernels of CPUExecutionProvider" in text

    cleared = cli("cache", "--clear")
    assert cleared.exit_code == 0
    assert cleared.stdout.endswith("3 files deleted\n")
    left = [path.name for path in root.rglob("*") if path.is_file()]
    assert left == ["notes.txt"]
    again = json.loads(cli("cache", "--json").stdout)["kinds"]
    assert [(kind["kind"], kind["files"]) for kind in again] == [("derived weights", 0)]


def test_what_nobody_uses_is_deleted_on_request(cli: Cli, root: Path) -> None:
    found = json.loads(cli("cache", "--prune", "--json").stdout)
    assert found["pruned"] == [str(root / "kernels" / "objects" / "a.o")]
    assert [kind["files"] for kind in found["kinds"]] == [1, 1]
    assert cli("cache", "--prune").stdout.endswith("0 files deleted\n")
