"""``tenonnx convert`` and ``tenonnx memory``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small import Cli


def test_convert_says_what_it_wrote(cli: Cli, mlp: str, folder: Path) -> None:
    result = cli("convert", mlp, "out.onnx", "--threshold", "16")
    assert result.exit_code == 0
    assert "wrote out.onnx.data" in result.stdout
    assert (folder / "out.onnx").is_file()
    assert cli("run", "out.onnx", "--input", "random").exit_code == 0


def test_convert_refuses_unknown_endings(cli: Cli, mlp: str) -> None:
    result = cli("convert", mlp, "out.h5")
    assert result.exit_code == 2
    assert "no format of that ending" in result.stderr


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs smaps_rollup")
def test_memory_of_several_processes(cli: Cli, mlp: str) -> None:
    result = cli("memory", mlp, "--processes", "2", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert len(found["processes"]) == 2
    for row in found["processes"]:
        assert 0 < row["base"]["private"] <= row["run"]["private"] <= row["run"]["resident"]
    assert "mapped" in found["report"]


def test_memory_tells_why_a_process_failed(cli: Cli) -> None:
    result = cli("memory", "nowhere.onnx")
    assert result.exit_code != 0
    assert "nowhere.onnx" in result.stderr
