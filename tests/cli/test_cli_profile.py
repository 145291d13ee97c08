from __future__ import annotations

import json
from pathlib import Path

from small import Cli


def test_nodes_and_operators_are_listed(cli: Cli, mlp: str) -> None:
    result = cli("profile", mlp, "--runs", 3, "--top", 3, "--level", "none")
    assert result.exit_code == 0, result.output
    assert "3 runs of" in result.stdout
    assert any(f"\n{name} " in result.stdout for name in ("ArgMax", "Gemm", "MatMul", "Relu"))
    assert "CPUExecutionProvider" in result.stdout
    assert "more; --top" in result.stdout


def test_as_json(cli: Cli, mlp: str) -> None:
    result = cli("profile", mlp, "--runs", 3, "--json", "--dim", "batch=4")
    found = json.loads(result.stdout)
    assert found["runs"] == 3
    assert found["run_seconds"] > 0
    assert abs(sum(row["share"] for row in found["operators"]) - 1) < 1e-6
    assert all(row["calls"] == 3 for row in found["nodes"])
    assert sum(row["output_bytes"] for row in found["nodes"]) > 0


def test_traces_and_pages_are_written(cli: Cli, mlp: str) -> None:
    result = cli("profile", mlp, "--runs", 2, "--trace", "t.json", "--html", "hot.html")
    assert result.exit_code == 0, result.output
    events = json.loads(Path("t.json").read_text())
    assert [event["name"] for event in events].count("model_run") == 2
    page = Path("hot.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "MatMul" in page
    assert "http" not in page
    refused = cli("profile", mlp, "--trace", "no/such/folder/t.json")
    assert refused.exit_code != 0
    assert "cannot write no/such/folder/t.json" in refused.output
