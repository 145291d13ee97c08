"""TENONNX_PROCESSOR: kernels for a target CPU, shared by machines that support it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenonnx.errors import InvalidArgument
from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.code import cpu as processor
from tenonnx_cpu.jit.code.cpu import KINDS, Cpu, cpu, target

OLDEST = "cx16 popcnt sse4_1 sse4_2 ssse3"
OLDER = f"{OLDEST} abm avx avx2 bmi1 bmi2 f16c fma movbe"
NEWER = f"{OLDER} avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni"
NEWEST = f"{NEWER} avx512vbmi avx512_bf16 amx_tile amx_int8 amx_bf16"


class Machine:
    """A machine with a processor of one's choice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def become(self, asked: str, flags: str, model: str = "1", arm: bool = False) -> None:
        facts = {"Features" if arm else "flags": flags, "model": model}
        self._monkeypatch.setenv(processor.VARIABLE, asked)
        self._monkeypatch.setattr(processor, "description", lambda: facts)
        self._monkeypatch.setattr(processor, "architecture", lambda: ("x86_64", "aarch64")[arm])
        self._monkeypatch.setattr(processor, "_asked_by_numpy", dict)
        forget()


def forget() -> None:
    for known in (cpu, target, library.find):
        known.cache_clear()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    yield Machine(monkeypatch)
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize(
    ("asked", "flags", "expected"),
    [
        ("", NEWER, Cpu(16, 32, "avx512")),
        ("", OLDER, Cpu(8, 16, "")),
        ("x86-64-v3", NEWER, Cpu(8, 16, "")),
        ("x86-64-v4", NEWER, Cpu(16, 32, "")),
        ("x86-64-v4+avx512vnni", NEWER, Cpu(16, 32, "avx512")),
        (KINDS[1], f"{NEWER} avx512vbmi avx512_bf16", Cpu(16, 32, "avx512", bf16=True)),
        ("", f"{NEWER} avx512vbmi avx512_bf16", Cpu(16, 32, "avx512", bf16=True)),
        ("x86-64-v3+avxvnni", f"{OLDER} avx_vnni", Cpu(8, 16, "avx")),
        ("", OLDEST, Cpu(4, 16, "")),
    ],
)
def test_kernels_are_written_for_what_is_asked_for(
    asked: str, flags: str, expected: Cpu, machine: Machine
) -> None:
    machine.become(asked, flags)
    assert cpu() == expected


@pytest.mark.parametrize("lent", [True, False])
def test_tiles_are_used_where_the_system_lends_them(
    lent: bool, machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS[:2]:
        (folder / f"{kind}.so").touch()
    monkeypatch.setattr(processor, "_lends_tiles", lambda: lent)
    machine.become("", NEWEST)
    assert cpu() == Cpu(16, 32, "avx512", amx=lent, bf16=True)
    assert found() == folder / f"{KINDS[not lent]}.so"


@pytest.mark.parametrize(
    ("flags", "kind", "vnni"),
    [
        ("fp asimd atomics asimddp i8mm", "armv8-a+dotprod+i8mm", "i8mm"),
        ("fp asimd atomics asimddp", "armv8-a+dotprod", "dotprod"),
        ("fp asimd", "armv8-a", ""),
    ],
)
def test_products_of_bytes_on_arm(
    flags: str, kind: str, vnni: str, machine: Machine, folder: Path
) -> None:
    for name in KINDS:
        (folder / f"{name}.so").touch()
    machine.become("", flags, arm=True)
    assert found() == folder / f"{kind}.so"
    assert cpu() == Cpu(4, 32, vnni)


def test_an_emulators_processor_is_what_a_process_is_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what a file of the machine below says, whose processor is of another kind."""
    machine.become("armv8-a+dotprod", NEWER)
    assert target() == processor.parse("x86-64-v4+avx512vnni")
    monkeypatch.setattr(processor, "architecture", lambda: "aarch64")
    monkeypatch.setattr(processor, "_told", lambda: frozenset(["asimddp"]))
    forget()
    assert target() == processor.parse("armv8-a+dotprod")


def test_processors_of_a_kind_share_kernels(machine: Machine) -> None:
    named = set()
    for model, flags in (("1", OLDER), ("2", NEWER)):
        machine.become("x86-64-v3", flags, model)
        named.add(library.cached_path(processor.parse("x86-64-v3")))
        assert target() == processor.parse("x86-64-v3")
    assert len(named) == 1


@pytest.mark.parametrize("asked", ["x86-64-v4", "x86-64-v3+avx512vnni"])
def test_a_processor_of_another_kind_says_what_it_lacks(
    asked: str, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.become(asked, OLDER)
    with caplog.at_level(logging.WARNING, "tenonnx.jit"):
        assert target() == processor.parse("x86-64-v3")
    assert f"this processor is not {asked} (it lacks avx512" in caplog.text
    assert cpu() == Cpu(8, 16, "")


@pytest.mark.parametrize("asked", ["znver4", "x86-64-v3+", "x86-64-v3-avx512f", "native"])
def test_other_kinds_are_refused(asked: str, machine: Machine) -> None:
    machine.become(asked, NEWER)
    with pytest.raises(InvalidArgument, match="expected x86-64-v2 or x86-64-v3 or x86-64-v4"):
        target()


def found() -> Path | None:
    """The library that a process takes."""
    there = library.find()
    return None if there is None else Path(there.path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which an installed package has its libraries."""
    for module in (processor, library):
        monkeypatch.setattr(module, "INSTALLED", str(tmp_path))
    monkeypatch.setenv(library.KERNELS_VARIABLE, str(tmp_path / "cached"))
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (NEWER, "x86-64-v4+avx512vnni"),
        (NEWER.replace("avx512_vnni", "avx_vnni"), "x86-64-v4"),
        (f"{OLDER} avx_vnni", "x86-64-v3+avxvnni"),
        (OLDER, "x86-64-v3"),
    ],
)
def test_the_best_installed_kind_is_taken(
    flags: str, expected: str, machine: Machine, folder: Path
) -> None:
    for kind in (*KINDS, "no-kind"):
        (folder / f"{kind}.so").touch()
    machine.become("", flags)
    assert found() == folder / f"{expected}.so"
    machine.become("x86-64-v3+sha", f"{flags} sha")
    assert found() is None
    cached = Path(library.cached_path(processor.parse("x86-64-v3+sha")))
    cached.parent.mkdir()
    cached.touch()
    forget()
    assert found() == cached


def test_kernels_that_lack_their_processor_are_named_once(
    machine: Machine, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a folder that was made elsewhere is copied to an older machine."""
    for kind in ("x86-64-v3", "x86-64-v4+avx512vnni"):
        (folder / f"{kind}.so").touch()
    machine.become("", "avx")
    with caplog.at_level(logging.WARNING, "tenonnx.jit"):
        assert [target() for _ in range(3)] == [None] * 3
    (said,) = caplog.messages
    assert "installed kernels are not used: this processor is not x86-64-v3 (it lacks abm" in said
    assert cpu() == Cpu(4, 16, "")


def test_an_emulator_may_lack_what_the_system_tells_of(
    machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS:
        (folder / f"{kind}.so").touch()
    machine.become("", NEWER)
    monkeypatch.setattr(processor, "_asked_by_numpy", lambda: {"AVX512F": False, "AVX2": True})
    assert target() == processor.parse("x86-64-v3")


def test_kernels_of_another_architecture_are_not_used(machine: Machine, folder: Path) -> None:
    (folder / "armv8-a.so").touch()
    machine.become("", NEWER)
    assert found() is None
    (folder / "x86-64-v3.so").touch()
    machine.become("", NEWER)
    assert found() == folder / "x86-64-v3.so"


@pytest.mark.parametrize("kind", ["armv8-a", "x86-64-v4"])
def test_a_process_that_compiles_need_not_be_of_the_kind(
    kind: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_given", None)
    machine.become("x86-64-v3", OLDER)
    processor.compile_for(kind)
    forget()
    assert cpu() == {"armv8-a": Cpu(4, 32, ""), "x86-64-v4": Cpu(16, 32, "")}[kind]
    assert target() == processor.parse(kind)
