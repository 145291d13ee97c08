"""JIT kernels in their surroundings: the cache, a machine without numba, forks, threads, modes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx
from tenonnx.cli.smoke import tiny_model
from tenonnx_cpu.jit import runtime, scratch
from tenonnx_cpu.jit.code import code_object, remarks
from tenonnx_cpu.jit.code.ahead import kept_in
from tenonnx_cpu.jit.code.cache import COMPILER
from tenonnx_cpu.jit.code.cpu import lacks, parse

pytest.importorskip("numba")

PRELUDE = """
import json, os, sys, threading, time
import numpy as np
{before}
import tenonnx
from tenonnx_cpu.jit import runtime
X = np.random.default_rng(0).standard_normal((1, 8, 64, 64), np.float32)
def opened(threads=2):
    options = tenonnx.SessionOptions()
    options.intra_op_num_threads = threads
    return tenonnx.InferenceSession(sys.argv[1], options)
def run(session):
    return session.run(None, {{"x": X}})[0]
def compiled():
    return sorted({{str(kernel) for kernel in runtime.KERNELS if kernel.run is not None}})
"""

NEEDED = ["capture.replay.replay", "norm.norms.softmax"]
"""Kernels that the model's sessions need."""

RECORD = """
import numba.core.event
compilations = numba.core.event.RecordingListener()
numba.core.event.register("numba:compile", compilations)
"""


@pytest.fixture(scope="module")
def warm(softmax: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that two processes of ``tenonnx warmup`` filled for the model at a time."""
    folder = tmp_path_factory.mktemp("cache")
    command = [sys.executable, "-m", "tenonnx", "warmup", str(softmax), "--json"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, env=environment(folder, "1"), **pipes) for _ in range(2)]
    ends = [process.communicate(timeout=300) for process in both]
    for process, (output, errors) in zip(both, ends, strict=True):
        assert process.returncode == 0, errors
        assert json.loads(output)["kernels"] == dict.fromkeys(NEEDED, True)
        assert "compiling norm.norms.softmax" in errors
    return folder


@pytest.fixture(scope="module")
def expected() -> Any:
    e = np.exp(sample().astype(np.float64))
    return e / e.sum(-1, keepdims=True)


def sample() -> Any:
    return np.random.default_rng(0).standard_normal((1, 8, 64, 64), np.float32)


def environment(cache: Path | str, mode: str) -> dict[str, str]:
    cleared = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    paths = os.pathsep.join(filter(None, sys.path))
    return cleared | {"TENONNX_CACHE_DIR": str(cache), "TENONNX_JIT": mode, "PYTHONPATH": paths}


def child(body: str, path: Path, cache: Path | str, mode: str = "compile", before: str = "") -> Any:
    """Run code in a fresh process, which prints JSON."""
    code = PRELUDE.format(before=before) + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env=environment(cache, mode),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


KEPT = (".plan", ".captures", ".modules")


def contents(folder: Path) -> dict[str, int]:
    """Return the files of a cache and when they were changed, but what sessions keep of plans."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix not in KEPT)
    return {str(file): file.stat().st_mtime_ns for file in files}


@pytest.mark.skipif(not code_object.SUPPORTED, reason="there are no code objects here")
def test_two_processes_leave_one_image_of_each(warm: Path) -> None:
    files = [Path(name) for name in contents(warm)]
    names = [file.name.split("-")[0] for file in files]
    assert sorted(set(names)) == sorted(names)
    assert {*NEEDED, "jit.threads.thread_pool.shared"} <= set(names)
    assert {file.suffix or file.name for file in files} == {".image", ".sources", COMPILER}


def test_after_a_warmup_nothing_is_compiled(softmax: Path, warm: Path, expected: Any) -> None:
    before = contents(warm)
    assert before
    found = child(
        """
        y = run(opened())
        print(json.dumps([y.tolist(), compiled(), len(compilations.buffer)]))
        """,
        softmax, warm, before=RECORD,
    )  # fmt: skip
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
    assert found[1:] == [NEEDED, 0]
    assert contents(warm) == before


WITHOUT_NUMBA = """
from tenonnx.process import distributions
for name in ("numba", "llvmlite", "tbb"): sys.modules[name] = None
version = distributions.version
distributions.version = lambda name: None if name == "numba" else version(name)
"""


def kernels_without_numba(path: Path, cache: Path, expected: Any, before: str = "") -> Any:
    """Run the model in a process that has no numba; return which kernels it had."""
    found = child(
        "y = run(opened()); print(json.dumps([y.tolist(), compiled()]))",
        path, cache, before=WITHOUT_NUMBA + before,
    )  # fmt: skip
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
    return found[1]


def test_without_numba_numpy_computes(softmax: Path, tmp_path: Path, expected: Any) -> None:
    assert kernels_without_numba(softmax, tmp_path, expected) == []


@pytest.mark.skipif(not code_object.SUPPORTED, reason="there are no code objects here")
def test_kernels_that_a_warmup_left_need_no_numba(softmax: Path, warm: Path, expected: Any) -> None:
    assert kernels_without_numba(softmax, warm, expected) == NEEDED


@pytest.fixture(scope="module")
def kind(softmax: Path, tmp_path_factory: pytest.TempPathFactory, expected: Any) -> Path:
    """A cache folder whose kernels are for a target CPU that this processor supports."""
    if lacks(parse("x86-64-v3")):
        pytest.skip("this processor is of no such kind")
    folder = tmp_path_factory.mktemp("kind")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENONNX_PROCESSOR", "x86-64-v3")
        found = child(
            """
            y = run(opened())
            from tenonnx_cpu.jit.code import numba_target
            used = numba_target.context().codegen().magic_tuple()[1:]
            print(json.dumps([y.tolist(), compiled(), used]))
            """,
            softmax, folder,
        )  # fmt: skip
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
    assert found[1:] == [NEEDED, ["x86-64-v3", ""]]
    return folder


def test_kernels_that_are_installed_need_no_numba(
    kind: Path, softmax: Path, tmp_path: Path, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENONNX_PROCESSOR", raising=False)
    for name in ("x86-64-v4+none", "x86-64-v3"):
        (tmp_path / "kernels" / name).mkdir(parents=True)
    for path in kept_in(kind / "numba" / "tenonnx"):
        shutil.copy(path, tmp_path / "kernels" / "x86-64-v3")
    before = f"""
from pathlib import Path
from tenonnx_cpu.jit.code import cpu
cpu.INSTALLED = Path({str(tmp_path / "kernels")!r})
"""
    found = kernels_without_numba(softmax, tmp_path / "cache", expected, before)
    assert found == NEEDED
    assert not list(tmp_path.glob("cache/**/*.image"))


LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"


@pytest.mark.parametrize("before", ["", LIMIT], ids=["read-only", "full"])
def test_kernels_do_without_a_cache(
    before: str, softmax: Path, tmp_path: Path, expected: Any
) -> None:
    """Folders under /proc can be made by nobody, root included; no byte fits a size limit of 0."""
    cache = tmp_path if before else Path("/proc/tenonnx")
    found = child(
        "y = run(opened()); print(json.dumps([y.tolist(), compiled()]))",
        softmax, cache, before=before,
    )  # fmt: skip
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
    assert found[1] == NEEDED
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size]


def test_forks_after_use(softmax: Path, warm: Path, expected: Any) -> None:
    found = child(
        """
        session = opened(4)
        y = run(session)
        read, write = os.pipe()
        if not (pid := os.fork()):
            same = [np.array_equal(run(s), y) for s in (session, opened(2))]
            os.write(write, json.dumps(same).encode())
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        print(json.dumps([status, json.loads(os.read(read, 100)), run(session).tolist()]))
        """,
        softmax, warm,
    )  # fmt: skip
    assert found[:2] == [0, [True, True]]
    np.testing.assert_allclose(found[2], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sessions", [1, 8])
def test_eight_threads_at_once(sessions: int, softmax: Path, warm: Path, expected: Any) -> None:
    found = child(
        f"""
        sessions = [opened(1 + i % 4) for i in range({sessions})]
        y, wrong = run(sessions[0]), []
        start = threading.Barrier(8)
        def work(i):
            start.wait()
            for _ in range(200):
                if not np.array_equal(run(sessions[i % len(sessions)]), y):
                    wrong.append(i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(json.dumps([wrong, y.tolist()]))
        """,
        softmax, warm,
    )  # fmt: skip
    assert found[0] == []
    np.testing.assert_allclose(found[1], expected, rtol=1e-5, atol=1e-6)


def test_mode_0_never_imports_numba(softmax: Path, warm: Path, expected: Any) -> None:
    found = child(
        "y = run(opened()); print(json.dumps([y.tolist(), compiled(), 'numba' in sys.modules]))",
        softmax, warm, "0",
    )  # fmt: skip
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
    assert found[1:] == [[], False]


def test_numpy_computes_in_place_of_damaged_kernels_until_a_warmup(
    softmax: Path, warm: Path, tmp_path: Path, expected: Any
) -> None:
    for name in contents(warm):
        copy = tmp_path / Path(name).relative_to(warm)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(Path(name).read_bytes()[:40])
    found = child(
        """
        from tenonnx_cpu.provider import CPUExecutionProvider
        first, ready = run(opened()), compiled()
        CPUExecutionProvider.warm_up(lambda *_: None, everything=False)
        print(json.dumps([first.tolist(), ready, run(opened()).tolist(), compiled()]))
        """,
        softmax, tmp_path, "1",
    )  # fmt: skip
    first, ready, later, compiled = found
    assert ready == []
    assert compiled == NEEDED
    np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(later, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "missing"])
def test_nothing_is_compiled_for_a_program(
    is_there: bool, softmax: Path, tmp_path: Path, expected: Any
) -> None:
    """One warning says so, however many sessions there are, and what mends it."""
    cache = tmp_path if is_there else tmp_path / "none"
    code = """
        import logging
        said = []
        logger = logging.getLogger("tenonnx.jit")
        logger.handlers = [logging.NullHandler()]
        logger.handlers[0].handle = lambda record: said.append(record.getMessage())
        ys = [run(opened(threads)) for threads in (1, 2)]
        print(json.dumps([ys[1].tolist(), compiled(), "numba" in sys.modules, said]))
        """
    y, ready, has_imported, said = child(code, softmax, cache, "1")
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    assert (ready, has_imported) == ([], False)
    assert said == [
        "kernels are not compiled for this processor: numpy computes, which takes several times "
        f"as long; {remarks.mend()}"
    ]
    assert not list(tmp_path.rglob("*.image"))


@pytest.mark.skipif(not code_object.SUPPORTED, reason="there are no code objects here")
def test_a_plan_is_of_the_kernels_that_there_were(
    softmax: Path, warm: Path, tmp_path: Path, expected: Any
) -> None:
    def opened() -> tuple[bool, list[str]]:
        y, moments, ready = child(
            """
            session = opened()
            print(json.dumps([run(session).tolist(), list(session.load_times), compiled()]))
            """,
            softmax, tmp_path, "1",
        )  # fmt: skip
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
        return moments == ["open"], ready

    folder = tmp_path / "numba"
    assert [opened() for _ in range(2)] == [(False, []), (True, [])]
    shutil.copytree(warm / "numba", folder, dirs_exist_ok=True)
    assert [opened() for _ in range(2)] == [(False, NEEDED), (True, NEEDED)]
    shutil.rmtree(folder)
    assert [opened() for _ in range(2)] == [(False, []), (True, [])]


def test_processes_that_compile_the_same_at_once(
    softmax: Path, tmp_path: Path, expected: Any
) -> None:
    code = PRELUDE.format(before="") + "print(json.dumps([run(opened()).tolist(), compiled()]))"
    command = [sys.executable, "-c", code, str(softmax)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    variables = environment(tmp_path, "compile")
    several = [subprocess.Popen(command, env=variables, **pipes) for _ in range(3)]
    for process in several:
        output, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, "")
        y, ready = json.loads(output)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
        assert ready == NEEDED
    if code_object.SUPPORTED:
        names = [file.name.split("-")[0] for file in tmp_path.rglob("*.image*")]
        assert sorted(set(names)) == sorted(names)
        assert set(NEEDED) <= set(names)


def test_a_child_waits_for_no_thread_that_compiled_where_it_was_forked(
    softmax: Path, tmp_path: Path, expected: Any
) -> None:
    y, ready = child(
        """
        from numba.core.compiler_lock import global_compiler_lock
        threading.Thread(target=lambda: run(opened()), daemon=True).start()
        lock = global_compiler_lock._lock
        while lock.acquire(blocking=False):  # until the thread has it
            lock.release()
            time.sleep(0.001)
        if not (pid := os.fork()):
            print(json.dumps([run(opened()).tolist(), compiled()]), flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        os._exit(0)
        """,
        softmax, tmp_path,
    )  # fmt: skip
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    assert ready == NEEDED


def test_unknown_modes_are_refused(monkeypatch: pytest.MonkeyPatch, softmax: Path) -> None:
    monkeypatch.setenv("TENONNX_JIT", "2")
    with pytest.raises(tenonnx.InvalidArgument, match="TENONNX_JIT is '2'"):
        tenonnx.InferenceSession(softmax)


def test_a_developers_mode_compiles_what_was_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = runtime.JitKernel("conv.boxes", "suppress")
    runtime.KERNELS.remove(asked)
    asked.state, asked.reason = runtime.NUMPY, runtime.MISSING
    monkeypatch.setenv("TENONNX_JIT", "1")
    asked.request()
    assert asked.run is None
    monkeypatch.setenv("TENONNX_JIT", "compile")
    asked.request()
    assert asked.run is not None
    assert asked.reason == ""


def test_without_numba_a_kernel_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = runtime.JitKernel("conv.boxes", "suppress")
    runtime.KERNELS.remove(asked)
    monkeypatch.setattr(runtime.JitKernel, "load", lambda _: False)
    monkeypatch.setattr(runtime, "has_numba", lambda: False)
    asked.compile()
    assert asked.run is None
    assert "pip install 'tenonnx[jit]'" in caplog.text


@pytest.mark.parametrize("has_numba", [True, False])
def test_an_install_without_kernels_says_so_once(
    has_numba: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TENONNX_JIT", "1")
    monkeypatch.setattr(code_object, "SUPPORTED", True)
    monkeypatch.setattr(remarks, "has_numba", lambda: has_numba)
    monkeypatch.setattr(runtime, "has_code_objects", lambda: False)
    remarks.warn_of_missing.cache_clear()
    model = tiny_model("MatMul")
    for _ in range(2):
        tenonnx.InferenceSession(model)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    mend = "tenonnx warmup" if has_numba else "pip install 'tenonnx[jit]', then tenonnx warmup"
    assert record.getMessage() == (
        "kernels are not compiled for this processor: numpy computes, which takes several times "
        f"as long; {mend}"
    )
    caplog.clear()
    remarks.warn_of_missing.cache_clear()
    monkeypatch.setenv("TENONNX_JIT", "0")  # that is what was asked for
    tenonnx.InferenceSession(model)
    assert not caplog.records


@pytest.fixture
def put_off(monkeypatch: pytest.MonkeyPatch) -> runtime.JitKernel:
    """A kernel whose code object is there, as a plan that was kept asks for it."""
    pytest.importorskip("numba")
    if not code_object.SUPPORTED:
        pytest.skip("kernels are loaded by numba here")
    monkeypatch.setenv("TENONNX_JIT", "compile")
    monkeypatch.setattr(runtime, "KERNELS", [])
    monkeypatch.setattr(runtime, "REOPENED", set())
    runtime.JitKernel("conv.boxes", "suppress").request()
    runtime.KERNELS.clear()
    runtime.reopen({runtime.JitKernel("conv.boxes", "suppress"): True})
    (found,) = runtime.KERNELS
    return found


def test_a_plans_kernel_is_loaded_when_it_is_asked_for(put_off: runtime.JitKernel) -> None:
    assert put_off.is_put_off
    assert put_off.state in {runtime.CACHED, runtime.PREBUILT}
    put_off.request()
    assert put_off.is_put_off
    assert put_off.run is not None
    assert not put_off.is_put_off
    assert put_off.load()


def test_an_installed_kernel_is_loaded_when_it_is_asked_for(
    put_off: runtime.JitKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(Path(put_off.path()).parent)
    monkeypatch.setattr(runtime, "installed", lambda: folder)
    monkeypatch.setattr(runtime, "REOPENED", set())
    monkeypatch.setattr(runtime, "FILES", {})
    kernel = runtime.JitKernel("conv.boxes", "suppress")
    kernel.request()
    assert (kernel.is_put_off, kernel.state) == (True, runtime.PREBUILT)
    assert kernel.run is not None
    assert not kernel.is_put_off


def test_a_plans_kernel_that_is_damaged_is_left_to_numpy(
    put_off: runtime.JitKernel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(code_object, "find", lambda *_: None)
    assert put_off.run is None
    assert (put_off.state, put_off.is_put_off) == (runtime.NUMPY, False)
    assert f"conv.boxes.suppress stays on numpy: {put_off.file} cannot be loaded" in caplog.text


def test_a_plan_is_used_with_the_kernels_that_it_was_kept_with(
    put_off: runtime.JitKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runtime.reopen({put_off: True}) is None
    assert runtime.reopen({put_off: False}) == "the kernel conv.boxes.suppress is there now"
    monkeypatch.setattr(runtime, "KERNELS", [])
    monkeypatch.setattr(runtime, "REOPENED", set())
    monkeypatch.setenv("TENONNX_JIT", "0")
    missing = runtime.JitKernel("conv.boxes", "suppress")
    assert runtime.reopen({missing: True}) == "the kernel conv.boxes.suppress is missing"
    assert runtime.reopen({missing: False}) is None


@pytest.mark.parametrize("python_ends", [False, True])
def test_a_threads_memory_outlives_python(
    python_ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon thread may be in a kernel while Python takes its variables away."""
    found: list[tuple[int, Any]] = []

    def work() -> None:
        memory = scratch.scratch(100)
        found.append((memory.ctypes.data, weakref.ref(memory.base)))

    monkeypatch.setattr(weakref.finalize, "_shutdown", python_ends)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    ((start, owner),) = found
    assert (owner() is not None) == python_ends
    rows = scratch.ROOMS[scratch.ROOMS[:, 1] == start]
    assert len(rows) == python_ends
    for row in scratch.ROOMS:
        scratch._leave(row, start)
