"""Every kernel with its arrays before, and behind, pages that nothing may touch.

Trials run in processes of their own (``worker``), which end where a kernel leaves its arrays.
``--guard-all`` has every trial run in every way: with what strangers make of rows of this folder,
of ``tests/operators`` and of ``tests/contrib``.
``--guard-rows rows_int8`` runs one file's rows, and all that strangers make of them.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from driver import Job, Report, contracts, run

pytest.importorskip("numba")

from tenonnx_cpu.conv import inverted_residual
from tenonnx_cpu.jit.code.cpu import cpu

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded by mprotect")

VALID = [
    Job("rows", copying=True, before=False, threads=2),
    Job("rows", copying=True, before=True, threads=3),
    Job("rows", copying=False, before=False, threads=1),
    Job("rows", copying=False, before=True, threads=4),
]
"""Scratch memory of a launch ends before a page, so that shares that are not in whole lines are
not aligned for the first worker either."""

PARTS = {"hostile": 60, "strided": 20, "unreal": 10}
"""Parts of what strangers make of rows, of which one runs by default."""

WAYS = [
    (copying, before, threads)
    for copying in (True, False)
    for before in (False, True)
    for threads in (1, 2)
]
SELECTIONS = [
    f"{name}{kind}"
    for name in ("rows", "operators", "contrib")
    for kind in ("", " hostile", " strided", " unreal")
]


def name_of(job: Job) -> str:
    what = "launches" if job.copying else "sessions"
    side = "begin" if job.before else "end"
    return f"{job.selection}-{what}-{side}-{job.threads}"


@pytest.fixture(scope="module")
def launched() -> Counter[str]:
    return Counter()


@pytest.fixture(scope="module")
def captured() -> Counter[str]:
    return Counter()


@pytest.fixture
def file(pytestconfig: pytest.Config) -> str | None:
    """The one file whose rows are run, without its suffix."""
    given: str | None = pytestconfig.getoption("--guard-rows")
    return given and Path(given).stem


def all_is_well(report: Report) -> None:
    assert not report.findings, "\n".join(report.findings)
    assert report.trials


@pytest.mark.parametrize("job", VALID, ids=name_of)
def test_rows(
    job: Job, tmp_path: Path, launched: Counter[str], captured: Counter[str], file: str | None
) -> None:
    report = run(dataclasses.replace(job, selection=file or job.selection), tmp_path)
    launched.update(report.launches)
    captured.update(report.captured)
    all_is_well(report)


def test_every_kernel_has_rows(
    launched: Counter[str], captured: Counter[str], file: str | None
) -> None:
    if file or not launched or not captured:
        pytest.skip("not all rows have run")
    absent = set() if inverted_residual.SUITED else {"conv.inverted_residual.conv_expanded"}
    narrow = {"conv.tiles.conv_tiles", "matmul.bfloat16.gemm_tiles"}
    absent |= set() if cpu().bf16 else narrow
    known = {name: each for name, each in contracts().items() if each and name not in absent}
    assert all(each.plan or each.launch or each.values for each in known.values())
    assert sorted(known.keys() ^ set(launched)) == [], "no row of tests/guard launches these"
    apart = {name for name, each in known.items() if each.captured} ^ set(captured)
    assert not apart, f"captured or not, otherwise than their contracts say: {sorted(apart)}"


@pytest.mark.parametrize("kind", ["hostile", "strided", "unreal"])
@pytest.mark.parametrize("copying", [True, False], ids=["launches", "sessions"])
def test_some_of_what_strangers_make_of_rows(
    copying: bool, kind: str, tmp_path: Path, file: str | None
) -> None:
    if file:
        report = run(Job(f"{file} {kind}", copying, before=copying), tmp_path)
        assert not report.findings, "\n".join(report.findings)
        return
    job = Job(f"rows {kind}", copying, before=copying, part=1, parts=PARTS[kind])
    all_is_well(run(job, tmp_path))


@pytest.mark.parametrize(("copying", "before", "threads"), WAYS)
def test_all(
    copying: bool, before: bool, threads: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    chosen = SELECTIONS if pytestconfig.getoption("--guard-all") else []
    for selection in chosen:
        all_is_well(run(Job(selection, copying, before, threads), tmp_path))


TOUCH = """
import ctypes, sys
sys.path.insert(0, {folder!r})
from tenonnx_cpu.testing.guarded_memory import guarded_bytes
array = guarded_bytes({nbytes}, before={before})
array[:] = 1
assert array.sum() == {nbytes}
ctypes.string_at(array.ctypes.data + {place}, 1)
"""


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("nbytes", [1, 4096, 5000])
def test_a_byte_beyond_ends_the_process(before: bool, nbytes: int) -> None:
    place = -1 if before else nbytes
    folder = str(Path(__file__).parent)
    touch = TOUCH.format(folder=folder, nbytes=nbytes, before=before, place=place)
    done = subprocess.run([sys.executable, "-c", touch], check=False, capture_output=True)
    assert done.returncode == -11, done.stderr
