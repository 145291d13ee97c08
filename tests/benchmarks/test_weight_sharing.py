from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[2]
ENGINES = ["tenonnx", "onnxruntime", "onnxruntime, best options"]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.weight_sharing", *arguments],
        cwd=ROOT,
        env={**os.environ, "TENONNX_JIT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_small_models_are_measured_and_compared(tmp_path: Path) -> None:
    done = bench(
        "fold",
        "qdq",
        "tied",
        "--scale=0.002",
        "--layers=1",
        "--rounds=1",
        "--budget=0.01",
        f"--output={tmp_path}",
    )
    rows = json.loads((tmp_path / "weight_sharing.json").read_text())["rows"]
    assert [row["engine"] for row in rows] == ENGINES * 3, done.stderr
    assert [row["note"] for row in rows] == [""] * 9
    for row in rows:
        assert row["values"]["load_s"] > 0
        assert row["values"]["run_s"] > 0
        assert row["values"]["peak_mib"] >= row["values"]["loaded_mib"] > -1
    bounds = [text for row in rows[::3] for text in row["bounds"]]
    assert sum("MiB" in text for text in bounds) == 5
    assert sum("of onnxruntime" in text for text in bounds) == 3
    assert all(ok for row in rows for text, ok in row["bounds"].items() if "MiB" in text)
    assert "| fold (" in (tmp_path / "weight_sharing.md").read_text()


def test_an_unknown_scenario_is_refused() -> None:
    done = bench("fald")
    assert done.returncode == 2
    assert "'fald' is not one of fold, qdq, tied, ort" in done.stderr
