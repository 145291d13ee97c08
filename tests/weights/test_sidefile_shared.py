"""Processes and threads that want the same side file build it once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sides import COUNT, FLOAT, names, ramp, write

from tenonnx.weights import draft
from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.sidefile import SideFiles

WORKER = """
import sys, time, numpy as np, onnx_ir as ir
from pathlib import Path
from tenonnx.weights.sidefile import SideFiles
from tenonnx.weights.registry import WeightRegistry
folder = Path(sys.argv[1])
registry = WeightRegistry(SideFiles(folder / "side"))
def fill(out):
    with open(folder / "built", "a") as file:
        file.write("x")
    out[: out.size // 2] = 1
    {pause}
    out[out.size // 2 :] = 1
{start}
weight = registry.materialize("key", ir.DataType.FLOAT, (1 << 20,), fill)
print(weight.storage.kind, weight.array.sum() == 1 << 20)
"""


def spawn(folder: Path, **parts: str) -> subprocess.Popen[str]:
    script = WORKER.format(**{"pause": "pass", "start": "pass", **parts})
    return subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=-1, text=True)


def wait_for(path: Path) -> None:
    for _ in range(1200):
        if path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} never appeared")


def test_processes_that_want_the_same_build_it_once(tmp_path: Path) -> None:
    start = "while not (folder / 'go').exists(): time.sleep(0.001)"
    workers = [spawn(tmp_path, start=start, pause="time.sleep(0.3)") for _ in range(4)]
    (tmp_path / "go").touch()
    outputs = [worker.communicate(timeout=100)[0] for worker in workers]
    assert outputs == ["derived True\n"] * 4
    assert (tmp_path / "built").read_text() == "x"
    assert names(tmp_path / "side") == [".weight"]


def test_a_process_that_dies_while_writing_leaves_nothing_to_see(tmp_path: Path) -> None:
    side = tmp_path / "side"
    worker = spawn(tmp_path, pause="(folder / 'half').touch(); time.sleep(600)")
    wait_for(tmp_path / "half")
    worker.kill()
    worker.communicate()
    assert worker.returncode == -signal.SIGKILL
    assert names(side) == [".draft"]
    assert SideFiles(side).find("key", "name") is None

    begin = time.monotonic()
    other = write(SideFiles(side), "other")
    assert other is not None
    assert names(side) == [".weight"], "the next writer sweeps the draft away"
    assert spawn(tmp_path).communicate(timeout=100)[0] == "derived True\n"
    assert time.monotonic() - begin < draft.WRITER_WAIT_SECONDS / 2


def test_patience_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "WRITER_WAIT_SECONDS", 0.1)
    held, done = threading.Event(), threading.Event()

    def hold(out: Any) -> None:
        held.set()
        done.wait(30)
        ramp(out)

    slow = SideFiles(folder)
    thread = threading.Thread(target=slow.write, args=("key", "name", FLOAT, (COUNT,), hold))
    thread.start()
    held.wait(30)
    assert write(SideFiles(folder)) is None
    done.set()
    thread.join()
    assert SideFiles(folder).find("key", "name") is not None


def test_threads_with_registries_of_their_own_build_once(folder: Path) -> None:
    built, found = [], []

    def fill(out: Any) -> None:
        built.append(1)
        time.sleep(0.05)
        ramp(out)

    def work() -> None:
        registry = WeightRegistry(SideFiles(folder))
        found.append(registry.materialize("key", FLOAT, (COUNT,), fill).storage.kind)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [1]
    assert found == ["derived"] * 6
