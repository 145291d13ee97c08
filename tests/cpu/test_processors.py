"""TENONNX_PROCESSOR: kernels of a kind of processor, which machines of that kind share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenonnx.errors import InvalidArgument
from tenonnx_cpu.jit.code import cache
from tenonnx_cpu.jit.code import cpu as processor
from tenonnx_cpu.jit.code.cpu import Cpu, cpu, target

OLDER = "abm avx avx2 bmi1 bmi2 f16c fma movbe"
NEWER = f"{OLDER} avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni"


class Machine:
    """A machine with a processor of one's choice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def become(self, asked: str, flags: str, model: str = "1") -> None:
        facts = {"flags": flags, "model": model}
        self._monkeypatch.setenv(processor.VARIABLE, asked)
        for module in (processor, cache):
            self._monkeypatch.setattr(module, "description", lambda: facts)
        forget()


def forget() -> None:
    for known in (cpu, target, cache.machine_stamp):
        known.cache_clear()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    for name in cache.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield Machine(monkeypatch)
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize(
    ("asked", "flags", "expected"),
    [
        ("native", NEWER, Cpu(16, 32, "avx512")),
        ("", OLDER, Cpu(8, 16, "")),
        ("x86-64-v3", NEWER, Cpu(8, 16, "")),
        ("x86-64-v4", NEWER, Cpu(16, 32, "")),
        ("x86-64-v4+avx512vnni", NEWER, Cpu(16, 32, "avx512")),
        ("x86-64-v3+avxvnni", f"{OLDER} avx_vnni", Cpu(8, 16, "avx")),
    ],
)
def test_kernels_are_written_for_what_is_asked_for(
    asked: str, flags: str, expected: Cpu, machine: Machine
) -> None:
    machine.become(asked, flags)
    assert cpu() == expected


@pytest.mark.parametrize(("asked", "shared"), [("x86-64-v3", True), ("native", False)])
def test_processors_of_a_kind_share_kernels(asked: str, shared: bool, machine: Machine) -> None:
    found = set()
    for model, flags in (("1", OLDER), ("2", NEWER)):
        machine.become(asked, flags, model)
        found.add(cache.machine_stamp("1"))
    assert (len(found) == 1) is shared


def test_kinds_and_compilers_differ(machine: Machine) -> None:
    found = {cache.machine_stamp("2")}
    for asked in ("native", "x86-64-v3", "x86-64-v4", "x86-64-v4+avx512vnni"):
        machine.become(asked, NEWER)
        found.add(cache.machine_stamp("1"))
    assert len(found) == 5


@pytest.mark.parametrize("asked", ["x86-64-v4", "x86-64-v3+avx512vnni"])
def test_a_processor_of_another_kind_says_what_it_lacks(
    asked: str, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.become("native", OLDER)
    own = cache.machine_stamp("1")
    machine.become(asked, OLDER)
    with caplog.at_level(logging.WARNING, "tenonnx.jit"):
        assert target() is None
    assert f"this processor is no {asked} (it lacks avx512" in caplog.text
    assert (cpu(), cache.machine_stamp("1")) == (Cpu(8, 16, ""), own)


@pytest.mark.parametrize("asked", ["znver4", "x86-64-v3+", "x86-64-v3-avx512f", "x86-64-v2"])
def test_other_kinds_are_refused(asked: str, machine: Machine) -> None:
    machine.become(asked, NEWER)
    with pytest.raises(InvalidArgument, match="expected native, x86-64-v3 or x86-64-v4"):
        target()


def installed(kinds: bytes | None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs kernels for these kinds of processor."""
    if kinds is not None:
        (folder / processor.KINDS).write_bytes(kinds)
    monkeypatch.setattr(processor, "installed", lambda: folder)


def test_the_best_installed_kind_is_taken(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(b"x86-64-v4+avx512vbmi\nx86-64-v4\nx86-64-v3", tmp_path, monkeypatch)
    found = []
    for flags in (NEWER, OLDER, "avx"):
        machine.become("", flags)
        found.append(target())
    assert [kind and kind.name for kind in found] == ["x86-64-v4", "x86-64-v3", None]


@pytest.mark.parametrize("kinds", [None, b"\xff\xfe", b"x86-64-v9\nx86-64-v3"])
def test_damaged_kernels_and_those_of_another_version_are_not_used(
    kinds: bytes | None,
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    installed(kinds, tmp_path, monkeypatch)
    machine.become("", OLDER)
    with caplog.at_level(logging.WARNING, "tenonnx.jit"):
        assert target() is None
    assert "install them anew" in caplog.text
