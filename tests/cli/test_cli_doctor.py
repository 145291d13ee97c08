from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import Cli, Write

from tenonnx.cli.memory import cgroup_limit


def findings(cli: Cli, *options: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(cli(*options, "doctor", "--json").stdout)}


def test_all_is_well(cli: Cli) -> None:
    result = cli("doctor")
    assert result.exit_code == 0, result.output
    assert "ok      CPUExecutionProvider: usable, and its sums are right" in result.stdout
    assert result.stdout.endswith("no problems\n")
    found = findings(cli)
    assert found["numpy"]["detail"] == np.__version__
    assert found["weight cache"]["detail"].startswith(os.environ["TENONNX_CACHE_DIR"])


def test_no_provider_is_a_problem(cli: Cli) -> None:
    result = cli("--no-plugin", "cpu", "doctor")
    assert result.exit_code == 1
    assert "problem providers: none is usable" in result.stdout
    assert result.stdout.endswith("1 problem\n")
    assert findings(cli, "--no-plugin", "cpu")["plugin cpu"]["status"] == "note"


def test_a_provider_that_computes_wrongly(cli: Cli, double: str) -> None:
    found = findings(cli, "--plugin", double)
    assert found["SlowExecutionProvider"]["status"] == "problem"
    assert found["SlowExecutionProvider"]["detail"] == "computes x + x wrongly"
    assert found["GoneExecutionProvider"]["status"] == "note"
    assert "buy one" in found["GoneExecutionProvider"]["detail"]


def test_a_provider_that_declines_to_add_is_well(cli: Cli, write: Write) -> None:
    plugin = write(
        "negates.py",
        """
        from tenonnx import Provider, hookimpl

        class Negates(Provider):
            name = "NegatesExecutionProvider"

            def supports(self, node):
                return True if node.op_type == "Neg" else f"negates only, no {node.op_type}"

            def compile(self, segment):
                raise AssertionError("it has no node")

        @hookimpl
        def register_providers(register):
            register(Negates)
        """,
    )
    found = findings(cli, "--plugin", plugin)["NegatesExecutionProvider"]
    assert found["status"] == "ok"
    assert found["detail"] == "usable; not tried, because it declines to add: negates only, no Add"


def test_a_plugin_that_does_not_load(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_PLUGINS", "no-such-plugin")

    result = cli("doctor")
    assert result.exit_code == 1
    assert "problem plugin no-such-plugin: not installed: " in result.stdout
    assert "--no-plugin no-such-plugin" in result.stdout


def test_a_forced_processor_type(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "OPENBLAS_CORETYPE" not in findings(cli)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    finding = findings(cli)["OPENBLAS_CORETYPE"]
    assert finding["status"] == "note"
    assert "may halve numpy's speed" in finding["detail"]
    assert finding["hint"] == "unset OPENBLAS_CORETYPE"


def test_a_cache_that_cannot_be_written(
    cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(Path(write("a-file", "")).resolve()))
    result = cli("doctor")
    assert result.exit_code == 1
    assert "derived weights take private memory in every process" in result.stdout
    monkeypatch.setenv("TENONNX_CACHE_SIZE", "much")
    assert findings(cli)["weight cache"]["status"] == "problem"
    monkeypatch.setenv("TENONNX_CACHE", "0")
    assert findings(cli)["weight cache"]["detail"] == "switched off by TENONNX_CACHE=0"


def test_a_cache_that_is_not_trusted(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path / "open"))
    found = findings(cli)["weight cache"]
    assert found["status"] == "problem"
    assert found["detail"].endswith("open is not used, because it can be written by anybody")
    assert found["hint"].startswith("chmod +t")


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/a/b", {"a/memory.max": "1000", "a/b/memory.max": "max"}, 1000),
        ("0::/a/b", {"a/memory.max": "1000", "a/b/memory.max": "500"}, 500),
        ("0::/elsewhere", {"memory.max": "700"}, 700),
        ("0::/a", {"a/memory.max": "max"}, None),
        ("2:cpu:/a\n3:memory:/a", {"memory/a/memory.limit_in_bytes": "300"}, 300),
        ("3:memory:/a", {"memory/a/memory.limit_in_bytes": str(2**63 - 4096)}, None),
    ],
)
def test_limits_of_cgroups(
    tmp_path: Path, membership: str, files: dict[str, str], expected: int | None
) -> None:
    for name, content in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    (tmp_path / "membership").write_text(f"{membership}\n")
    assert cgroup_limit(tmp_path / "membership", tmp_path / "groups") == expected


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_private_memory_is_measured() -> None:
    """In a process of its own, for other threads of this one give pages back meanwhile."""
    code = """
import mmap
import tempfile
from tenonnx.cli.memory import private_bytes
private_bytes()
before = private_bytes()
# Fresh pages: the heap may have enough to give again.
pages = mmap.mmap(-1, 32 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
file = tempfile.TemporaryFile()
file.truncate(len(pages))
shared = mmap.mmap(file.fileno(), 0)
for start in range(0, len(pages), mmap.PAGESIZE):
    pages[start] = shared[start] = 1
print(len(pages), private_bytes() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    held, taken = map(int, done.stdout.split())
    assert held <= taken < 1.25 * held


@pytest.mark.parametrize("mode", ["0", "1"])
def test_what_the_cpu_provider_runs_on(
    mode: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_JIT", mode)
    finding = findings(cli)["CPUExecutionProvider runs on"]
    if mode == "0":
        assert finding["status"] == "note"
        assert finding["detail"].startswith("no kernels, because TENONNX_JIT is 0: numpy computes")
        assert finding["hint"] == "unset TENONNX_JIT"
    else:
        assert "kernels" in finding["detail"]


def test_active_observers_are_named(cli: Cli, write: Write, mlp: str) -> None:
    plugin = write(
        "watching.py",
        """
        import tenonnx

        class Nothing:
            def on_step(self, step, start_ns, outputs):
                pass

        @tenonnx.hookimpl
        def create_observer(plan):
            return Nothing()
        """,
    )
    said = findings(cli, "--plugin", plugin)["plugin watching"]["detail"]
    assert "its observer is active, and runs take longer" in said
    ran = cli("--plugin", plugin, "run", mlp, "-i", "random", "--dim", "batch=2")
    assert ran.exit_code == 0, ran.output
    assert "the observer of watching is active: runs take longer" in ran.stderr
    assert "observer" not in cli("run", mlp, "-i", "random", "--dim", "batch=2").stderr
    unknown = cli("--plugin", plugin, "--observe", "watchers", "run", mlp)
    assert unknown.exit_code == 2
    assert "no plug-in 'watchers' has an observer" in unknown.stderr
