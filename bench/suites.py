"""The pytest-benchmark suites, as rows of the table."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from bench.compare import Row
from bench.machine import tell
from bench.measure import environment

HERE = Path(__file__).parent
SUITES = ("dispatch", "load", "models")
FULL = ["--benchmark-max-time=0.3", "--benchmark-min-rounds=3"]
QUICK = ["--quick", "--benchmark-max-time=0.01", "--benchmark-min-rounds=1"]


def run_suite(name: str, folder: Path, *, quick: bool) -> list[Row]:
    """Run ``test_<name>.py``; what pytest says about failures goes to stderr.

    Args:
        name: One of ``SUITES``.
        folder: For pytest-benchmark's own report.
        quick: Measure small things and briefly.
    """
    if not importlib.util.find_spec("pytest_benchmark"):
        tell(f"{name}: pytest-benchmark is not installed")
        return []
    tell(f"test_{name}.py")
    results = folder / f"{name}.json"
    results.unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", "--benchmark-quiet", f"--benchmark-json={results}"]
    # A test that fails before it measures is told of already.
    options += ["-W", "ignore::pytest_benchmark.logger.PytestBenchmarkWarning"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", f"bench/test_{name}.py", *options]
        + (QUICK if quick else FULL),
        cwd=HERE.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=environment(0, folder) | {"COLUMNS": "200"},
    )
    tell(done.stdout)
    rows = [_row(name, each) for each in _benchmarks(results)]
    if done.returncode:
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        notes = failed or [f"pytest ended with status {done.returncode}"]
        rows += [Row(f"test_{name}", 0, "tenonnx", note=note) for note in notes]
    return rows


def _benchmarks(path: Path) -> list[dict[str, object]]:
    content = path.read_text() if path.exists() else ""
    return json.loads(content)["benchmarks"] if content else []


def _row(suite: str, benchmark: dict[str, object]) -> Row:
    stats, extra = benchmark["stats"], benchmark["extra_info"]
    assert isinstance(stats, dict)
    assert isinstance(extra, dict)
    name = str(benchmark["name"]).removeprefix("test_").replace("_", " ")
    values = {"run_s": stats["min"], "median_s": stats["median"], **extra}
    return Row(f"{suite}: {name}", 0, "tenonnx", values)
