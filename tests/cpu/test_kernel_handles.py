"""Handles on kernels: one for each, looked up when it is wanted; and what is said without any."""

from __future__ import annotations

import pickle
import threading
import weakref
from typing import Any

import pytest
from running import require_kernels

import tenonnx
from tenonnx.cli.smoke import tiny_model
from tenonnx_cpu.jit import library, remarks, runtime, scratch
from tenonnx_cpu.jit.packages import OWN

require_kernels()


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> runtime.JitKernel:
    """A handle that nobody has used."""
    monkeypatch.setattr(runtime, "KERNELS", {})
    return runtime.JitKernel("conv.boxes", "suppress")


def test_there_is_one_handle_of_a_kernel(handle: runtime.JitKernel) -> None:
    assert runtime.JitKernel("conv.boxes", "suppress") is handle
    assert pickle.loads(pickle.dumps(handle)) is handle
    assert str(handle) == "conv.boxes.suppress"
    with pytest.raises(AttributeError, match="kernels have no speed"):
        getattr(handle, "speed")  # noqa: B009 - mypy knows that there is none


def test_a_kernel_is_looked_up_when_it_is_wanted(
    handle: runtime.JitKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_JIT", "0")
    assert handle.run is None
    monkeypatch.setenv("TENONNX_JIT", "1")
    run = handle.run
    assert run is not None
    assert handle.run is run
    assert handle.state in {runtime.CACHED, runtime.PREBUILT}
    assert handle.reason == ""


def test_a_kernel_that_the_library_lacks_is_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "KERNELS", {})
    none = runtime.JitKernel("conv.boxes", "none")
    assert none.run is None
    assert (none.state, none.reason) == (runtime.NUMPY, runtime.MISSING)


def test_a_plan_is_used_with_the_kernels_that_it_was_cached_with(
    handle: runtime.JitKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runtime.changed({handle: True}) is None
    assert runtime.changed({handle: False}) == "the kernel conv.boxes.suppress is there now"
    handle.forget()
    monkeypatch.setenv("TENONNX_JIT", "0")
    assert runtime.changed({handle: True}) == "the kernel conv.boxes.suppress is missing"
    assert runtime.changed({handle: False}) is None


def test_unknown_modes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_JIT", "2")
    with pytest.raises(tenonnx.InvalidArgument, match="TENONNX_JIT is '2'; expected 0 or 1"):
        tenonnx.InferenceSession(tiny_model("MatMul"))


@pytest.mark.parametrize(
    ("has_numba", "supported", "mend"),
    [
        (True, True, "tenonnx warmup"),
        (False, True, "pip install 'tenonnx[jit]', then tenonnx warmup"),
        (True, False, "there are kernels for Linux on x86-64 and AArch64 alone"),
    ],
)
def test_an_install_without_kernels_says_so_once(
    has_numba: bool,
    supported: bool,
    mend: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(library, "_opened", {OWN.name: None})
    monkeypatch.setattr(library, "SUPPORTED", supported)
    monkeypatch.setattr(remarks, "has_numba", lambda: has_numba)
    remarks.warn_of_missing.cache_clear()
    model = tiny_model("MatMul")
    for _ in range(2):
        session = tenonnx.InferenceSession(model)
    assert {kernel.state for kernel in session.kernels.values()} == {"numpy"}
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "kernels are not compiled for this processor: numpy computes, which takes several times "
        f"as long; {mend}"
    )
    caplog.clear()
    remarks.warn_of_missing.cache_clear()
    monkeypatch.setenv("TENONNX_JIT", "0")  # that is what was asked for
    tenonnx.InferenceSession(model)
    assert not caplog.records


def test_what_is_told_of_a_process_and_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    found = library.find()
    assert found is not None
    text, mend = remarks.kernels()[0]
    assert text.endswith(f", in {found.path}")
    assert mend is None
    monkeypatch.setattr(library, "_opened", {OWN.name: None})
    assert remarks.kernels()[0][0] == f"{found.path} cannot be used: {remarks.SLOW}"
    monkeypatch.setattr(library, "find", lambda *_: None)
    assert remarks.kernels() == [(f"no kernels: {remarks.SLOW}", remarks.mend())]
    monkeypatch.setenv("TENONNX_JIT", "0")
    assert remarks.kernels()[0][1] == "unset TENONNX_JIT"


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
