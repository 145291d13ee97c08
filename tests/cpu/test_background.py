"""Compiling in the background: what runs, forks, exits and other processes notice of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenonnx.planning import blas
from tenonnx_cpu import threading_config
from tenonnx_cpu.jit import background, claims, compiler_process, runtime
from tenonnx_cpu.jit.background import Background
from tenonnx_cpu.jit.code import code_object
from tenonnx_cpu.jit.runtime import COMPILING, NUMPY, Demand, JitKernel
from tenonnx_cpu.jit.threads import memory as pool_memory

pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(not code_object.SUPPORTED, reason="a thread compiles here")

STUB = """
import json, os, sys, time
answers = dict(pair.split("=") for pair in os.environ["ANSWERS"].split(","))
for line in sys.stdin:
    name = json.loads(line).get("code object", "").rpartition(".")[2]
    if name:
        with open(os.environ["ASKED"], "a") as file: print(name, file=file)
    else: time.sleep(float(os.environ.get("STARTING", 0)))
    answer = answers.get(name, "")
    if answer == "endless": time.sleep(100)
    if answer == "dies": os.kill(os.getpid(), 9)
    print(json.dumps({"error": answer}), flush=True)
"""
"""A compiler that compiles nothing."""


class FakeKernel(JitKernel):
    """A kernel that is there once the compiler has said that it is done."""

    __slots__ = ()

    def load(self, *, compiled: bool = False) -> bool:
        if compiled:
            self.run, self.state = print, "compiled"
        return compiled

    def path(self) -> Path:
        return Path(f"/nowhere/{self.name}.image")


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Background]:
    monkeypatch.setattr(compiler_process, "CODE", STUB)
    monkeypatch.setenv("ANSWERS", "none=none")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    made = Background()
    yield made
    made.stop()


def demand(work: dict[str, float]) -> Demand:
    found = Demand()
    for name, amount in work.items():
        kernel = FakeKernel("fake", name)
        runtime.KERNELS.remove(kernel)
        kernel.state = COMPILING
        found[kernel] = amount
    return found


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().split()


def until(condition: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_takes_most_time_comes_first_and_models_take_turns(
    queue: Background, tmp_path: Path
) -> None:
    queue.put(demand({"a1": 1, "a9": 9, "a5": 5}))
    queue.put(demand({"b2": 2, "b3": 3}))
    queue.settle()
    assert asked(tmp_path) == ["a9", "b3", "a5", "b2", "a1"]


def test_what_is_asked_for_while_the_compiler_starts_may_come_first(
    queue: Background, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARTING", "1")
    wanted = demand({"early": 1})
    queue.put(wanted)
    until(lambda: queue._compiler._process is not None)
    wanted.update(demand({"late": 9}))
    queue.settle()
    assert asked(tmp_path) == ["late", "early"]


def test_what_no_node_waits_for_comes_last(queue: Background, tmp_path: Path) -> None:
    queue.put(demand({"nobody's": 0}))
    queue.put(demand({"a": 1, "b": 2}))
    queue.settle()
    assert asked(tmp_path) == ["b", "a", "nobody's"]


def test_kernels_leave_the_compiler_a_core(
    queue: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [0] * pool_memory.WORDS
    monkeypatch.setattr(pool_memory, "_memory", words)
    monkeypatch.setattr(pool_memory, "available_cores", lambda: 4)
    monkeypatch.setattr(threading_config, "most_threads", lambda: 4)
    monkeypatch.setenv("ANSWERS", "one=endless")
    queue.put(demand({"one": 1}))
    until(lambda: words[pool_memory.SIZE] == 2)
    queue.stop()
    assert words[pool_memory.SIZE] == 3


def test_numpys_products_leave_the_compiler_a_core(
    queue: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = blas.openblas()
    if library is None or library.own or library.get() < 2:
        pytest.skip("numpy's products use one thread here, or another library's")
    before = library.get()
    monkeypatch.setenv("ANSWERS", "one=endless")
    queue.put(demand({"one": 1}))
    until(lambda: library.get() == before - 1)
    queue.stop()
    assert library.get() == before


@pytest.mark.parametrize("answer", ["dies", "LoweringError: no"])
def test_a_kernel_that_fails_is_tried_again_at_the_end_and_named_once(
    answer: str,
    queue: Background,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("ANSWERS", f"bad={answer}")
    wanted = demand({"bad": 9, "good": 1})
    queue.put(wanted)
    queue.settle()
    assert asked(tmp_path) == ["bad", "good", "bad"]
    said = "the compiler was killed by SIGKILL" if answer == "dies" else answer
    assert [(kernel.state, kernel.reason) for kernel in wanted] == [(NUMPY, said), ("compiled", "")]
    assert [record.getMessage() for record in caplog.records] == [
        f"the JIT kernel fake.bad stays on numpy: {said}"
    ]


def test_python_ends_in_the_middle_of_a_compilation(
    queue: Background, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSWERS", "slow=endless")
    queue.put(demand({"slow": 1}))
    until(lambda: (tmp_path / "asked").exists())
    process = queue._compiler._process
    assert process is not None
    queue.stop()  # without an answer, which never comes
    assert process.poll() == -signal.SIGKILL
    queue.put(demand({"late": 1}))
    assert queue._thread is None or not queue._thread.is_alive()


def test_a_child_that_is_forked_meanwhile_compiles_what_is_left(
    queue: Background, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSWERS", "slow=endless")
    monkeypatch.setattr(background, "PATIENCE", 0.2)  # the parent goes on compiling it
    queue.put(demand({"slow": 2, "next": 1}))
    until(lambda: (tmp_path / "asked").exists())
    monkeypatch.setenv("ANSWERS", "none=none")
    pid = os.fork()
    if not pid:
        status = 1
        try:
            # pytest's process has other handlers for forks than this queue's.
            queue.forked()
            queue.settle()
            status = 0
        finally:
            os._exit(status)
    until(lambda: len(asked(tmp_path)) >= 3)
    assert os.waitpid(pid, 0)[1] == 0
    assert sorted(asked(tmp_path)) == ["next", "slow", "slow"]
    assert queue._current is not None
    assert queue._compiler._process is not None
    assert queue._compiler._process.poll() is None


def test_what_another_process_compiles_is_left_to_it(queue: Background, tmp_path: Path) -> None:
    wanted = demand({"theirs": 2, "ours": 1})
    theirs, _ = wanted
    code = (
        "import sys, pathlib; from tenonnx_cpu.jit.claims import claimed\n"
        f"with claimed(pathlib.Path({str(theirs.path())!r})) as free:\n"
        "    print(free, flush=True); sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "True\n"
    queue.put(wanted)
    until(lambda: (tmp_path / "asked").exists() and wanted.waiting() == [theirs])
    time.sleep(3 * background.OTHERS_SECONDS)
    assert asked(tmp_path) == ["ours"]
    other.communicate()  # it ends, and with it the claim
    queue.settle()
    assert asked(tmp_path) == ["ours", "theirs"]
    with claims.claimed(theirs.path()) as free:
        assert free


def test_a_process_that_never_ends_is_not_waited_for(
    queue: Background, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_is_free", lambda _: False)
    monkeypatch.setattr(background, "PATIENCE", 0.2)
    queue.put(demand({"theirs": 1}))
    queue.settle()
    assert asked(tmp_path) == ["theirs"]


PRELUDE = """
import json, os, signal, sys, threading, time
import numpy as np
import tenonnx
from tenonnx_cpu.jit import runtime
X = np.ones((1, 8, 64, 64), np.float32)
def until(condition):
    while not condition(): time.sleep(0.01)
queue = runtime._queue()
session = tenonnx.InferenceSession(sys.argv[1])
assert (session.run(None, {"x": X})[0] == 1 / 64).all()
until(lambda: queue._compiler._process is not None)
compiler = queue._compiler._process.pid
print(compiler, flush=True)
"""


def started(body: str, path: Path, cache: Path) -> subprocess.Popen[str]:
    variables = {"TENONNX_JIT": "1", "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", PRELUDE + textwrap.dedent(body), str(path)],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


ENDS = {
    "exit": ("time.sleep(0.3)", 0),
    "sys.exit": ("time.sleep(0.3); sys.exit(3)", 3),
    "os._exit": ("time.sleep(0.3); os._exit(4)", 4),
    "in a thread": ("threading.Thread(target=lambda: time.sleep(0.3)).start()", 0),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_at_once_and_without_a_word(end: str, softmax: Path, tmp_path: Path) -> None:
    body, status = ENDS[end]
    process = started(body, softmax, tmp_path)
    assert process.stdout is not None
    compiler = int(process.stdout.readline())
    with contextlib.suppress(ProcessLookupError):
        os.kill(compiler, signal.SIGSTOP)  # whoever waits for it waits for ever
    _, errors = process.communicate(timeout=60)
    with contextlib.suppress(ProcessLookupError):
        os.kill(compiler, signal.SIGCONT)
    assert process.returncode == status
    assert [line for line in errors.splitlines() if "compiling" not in line] == []
    until(lambda: is_gone(compiler))


def test_ctrl_c_is_for_the_program_alone(softmax: Path, tmp_path: Path) -> None:
    body = """
        try:
            os.killpg(0, signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            pass
        time.sleep(0.2)
        process = queue._compiler._process  # none if it is between two, or done
        assert process is None or process.poll() is None
        assert not [why for why in queue._failed.values() if "SIGINT" in why], queue._failed
    """
    process = started("os.setpgid(0, 0)\n" + textwrap.dedent(body), softmax, tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


def test_a_child_waits_for_no_thread_that_compiled_where_it_was_forked(
    softmax: Path, tmp_path: Path
) -> None:
    code = """
        import json, os, sys, threading, time
        import numpy as np, tenonnx
        from numba.core.compiler_lock import global_compiler_lock
        def run():
            session = tenonnx.InferenceSession(sys.argv[1])
            y = session.run(None, {"x": np.ones((1, 8, 64, 64), np.float32)})[0]
            return [y.mean().item(), sorted(k.state for k in session.kernels.values())]
        threading.Thread(target=run, daemon=True).start()
        lock = global_compiler_lock._lock
        while lock.acquire(blocking=False):  # until the thread has it
            lock.release()
            time.sleep(0.001)
        if not (pid := os.fork()):
            print(json.dumps(run()), flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        os._exit(0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(softmax)],
        env=os.environ | {"TENONNX_JIT": "wait", "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    mean, states = json.loads(done.stdout)
    assert mean == 1 / 64
    assert set(states) <= {"cached", "compiled"}


def test_a_session_says_what_is_compiled_and_has_it_when_that_is_done(
    softmax: Path, tmp_path: Path
) -> None:
    body = """
        before = session.kernels
        tenonnx.InferenceSession(sys.argv[1])  # says nothing new
        queue.settle()
        assert (session.run(None, {"x": X})[0] == 1 / 64).all()
        os.environ["TENONNX_JIT"] = "0"
        last = tenonnx.InferenceSession(sys.argv[1]).kernels
        told = [{n: [k.state, k.reason] for n, k in all.items()}
                for all in (before, session.kernels, last)]
        print(json.dumps(told))
    """
    output, errors = started(body, softmax, tmp_path).communicate(timeout=200)
    before, after, last = json.loads(output.splitlines()[-1])
    names = ["capture.replay.replay", "norm.norms.softmax"]
    assert sorted(before) == sorted(after) == names
    assert set(map(tuple, before.values())) <= {("compiling", ""), ("compiled", "")}
    assert set(map(tuple, after.values())) == {("compiled", "")}
    assert last == {"all": ["numpy", "TENONNX_JIT is 0"]}
    said = "compiling 2 kernels for softmax.onnx, about 4 s; runs are slower until then"
    assert errors.splitlines() == [said]


def test_kernels_that_a_killed_process_made_are_the_next_ones(
    softmax: Path, tmp_path: Path
) -> None:
    body = """
        until(lambda: any(k.state == "compiled" for k in runtime.KERNELS))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    started(body, softmax, tmp_path).communicate(timeout=200)
    body = """
        queue.settle()
        y = session.run(None, {"x": X})[0]
        states = sorted(k.state for k in runtime.KERNELS if k.state)
        print(json.dumps([y.mean().item(), states]))
    """
    output, errors = started(body, softmax, tmp_path).communicate(timeout=200)
    mean, states = json.loads(output.splitlines()[-1])
    assert mean == 1 / 64, errors
    assert "cached" in states
    assert set(states) <= {"cached", "compiled"}
    assert not list(tmp_path.rglob("*.image.*"))
    assert len(states) == 2
