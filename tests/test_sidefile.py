from __future__ import annotations

import errno
import fcntl
import functools
import json
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import tenonnx
from tenonnx.errors import InvalidArgument
from tenonnx.weights import draft, sidefile
from tenonnx.weights.registry import SIDE_FILE_BYTES, WeightRegistry
from tenonnx.weights.sidefile import HEADER, HEADER_BYTES, MAGIC, SideFiles, checksum_of

FLOAT = ir.DataType.FLOAT
COUNT = SIDE_FILE_BYTES // 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "side"


def ramp(out: Any) -> None:
    out.reshape(-1)[:] = np.arange(out.size)


def write(files: SideFiles, key: str = "key", count: int = COUNT) -> Any:
    return files.write(key, f"name of {key}", FLOAT, (count,), ramp)


def names(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir())


def content(found: Any) -> Any:
    array = np.frombuffer(found.mapping.buffer, np.uint8)
    return array.view(found.dtype.numpy()).reshape(found.shape)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    array=arrays.arrays(
        st.sampled_from([np.float32, np.int8, np.uint16, np.complex128, np.bool_]),
        arrays.array_shapes(max_dims=4, max_side=6),
    ),
    key=st.text(),
)
def test_what_was_written_is_found_by_anyone(tmp_path: Path, array: Any, key: str) -> None:
    dtype = ir.DataType.from_numpy(array.dtype)
    folder = tmp_path / str(time.monotonic_ns())
    fill = functools.partial(np.copyto, src=array)
    written = SideFiles(folder).write(key, "n", dtype, array.shape, fill)
    found = SideFiles(folder).find(key, "name")
    assert written is not None
    assert found is not None
    assert found.mapping.key == "name"
    assert found.mapping.address % 4096 == 0
    assert (found.dtype, found.shape) == (dtype, array.shape)
    assert content(found).tobytes() == content(written).tobytes() == array.tobytes()
    assert np.frombuffer(found.mapping.buffer, np.uint8).flags.writeable is False
    assert SideFiles(folder).find(key + "x", "name") is None


def test_packed_elements_are_written_as_bytes(folder: Path) -> None:
    def fill(out: Any) -> None:
        assert (out.dtype, out.shape) == (np.uint8, (8,))
        out[:] = np.arange(8)

    found = SideFiles(folder).write("key", "name", ir.DataType.INT4, (3, 5), fill)
    assert found is not None
    assert bytes(found.mapping.buffer) == bytes(range(8))


def damage_magic(data: bytearray) -> None:
    data[0] ^= 1


def damage_header(data: bytearray) -> None:
    data[HEADER.size + 3] ^= 1


def damage_start(data: bytearray) -> None:
    data[HEADER_BYTES] ^= 0x10


def damage_end(data: bytearray) -> None:
    data[-1] ^= 0x80


def damage_order(data: bytearray) -> None:
    half = HEADER_BYTES + (len(data) - HEADER_BYTES) // 2
    data[HEADER_BYTES:] = data[half:] + data[HEADER_BYTES:half]


def damage_zeros(data: bytearray) -> None:
    data[HEADER_BYTES:] = bytes(len(data) - HEADER_BYTES)


def damage_length(data: bytearray) -> None:
    del data[-4:]


def damage_all(data: bytearray) -> None:
    del data[:]


def damage_to_stub(data: bytearray) -> None:
    del data[10:]


def damage_to_nonsense(data: bytearray) -> None:
    text = json.dumps({"dtype": 77, "shape": "no"}).encode()
    data[: HEADER.size] = HEADER.pack(MAGIC, 0, zlib.crc32(text), len(text))
    data[HEADER.size : HEADER.size + len(text)] = text


@pytest.mark.parametrize(
    "damage",
    [
        damage_magic,
        damage_header,
        damage_start,
        damage_end,
        damage_order,
        damage_zeros,
        damage_length,
        damage_all,
        damage_to_stub,
        damage_to_nonsense,
    ],
)
def test_a_damaged_file_is_rebuilt_and_replaced(folder: Path, damage: Any) -> None:
    count = 4 * sidefile.BLOCK_WORDS
    write(SideFiles(folder), count=count)
    (path,) = folder.iterdir()
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)

    registry = WeightRegistry(SideFiles(folder))
    built = []

    def fill(out: Any) -> None:
        built.append(1)
        ramp(out)

    weight = registry.materialize("key", FLOAT, (count,), fill)
    assert built == [1]
    np.testing.assert_array_equal(weight.array, np.arange(count))
    assert weight.storage.label == str(path)
    fresh = SideFiles(folder).find("key", "name")
    assert fresh is not None
    np.testing.assert_array_equal(content(fresh), np.arange(count))


@given(
    size=st.integers(0, 100),
    changes=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 255)), max_size=3),
)
def test_the_checksum_tells_bytes_apart(size: int, changes: list[tuple[int, int]]) -> None:
    before = np.arange(size, dtype=np.uint8)
    after = before.copy()
    for place, value in changes:
        if place < size:
            after[place] = value
    differ = np.count_nonzero(before != after)
    if differ <= 1:  # a single byte is always told; more of them almost always
        assert (checksum_of(before) == checksum_of(after)) == (differ == 0)


def test_the_checksum_is_taken_once_per_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(SideFiles(folder))
    taken = []

    def counted(payload: Any) -> int:
        taken.append(1)
        return checksum_of(payload)

    monkeypatch.setattr(sidefile, "checksum_of", counted)
    files = SideFiles(folder)
    assert files.find("key", "name") is not None
    assert files.find("key", "name") is not None
    assert taken == [1]
    write(files, "other")
    assert taken == [1, 1], "once when it is written, and not again"


def test_finding_a_file_does_not_change_its_identity(folder: Path) -> None:
    write(SideFiles(folder))
    (path,) = folder.iterdir()
    os.utime(path, ns=(0, path.stat().st_mtime_ns))
    before = path.stat()
    first, second = (SideFiles(folder).find("key", "name") for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.mapping.identity == second.mapping.identity
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_atime_ns > before.st_atime_ns


def age(folder: Path, key: str, seconds: int) -> None:
    path = SideFiles(folder)._path(key)
    os.utime(path, ns=(seconds * 10**9, path.stat().st_mtime_ns))


def test_files_used_longest_ago_make_room(folder: Path) -> None:
    size = HEADER_BYTES + SIDE_FILE_BYTES
    for number, key in enumerate("abc"):
        write(SideFiles(folder), key)
        age(folder, key, number)
    SideFiles(folder).find("a", "name")
    assert write(SideFiles(folder, 3 * size), "d") is not None
    left = [key for key in "abcd" if SideFiles(folder).find(key, "name")]
    assert left == ["a", "c", "d"]


def test_files_of_this_process_are_not_thrown_out_for_others(folder: Path) -> None:
    size = HEADER_BYTES + SIDE_FILE_BYTES
    files = SideFiles(folder, 2 * size)
    assert write(files, "a") is not None
    assert write(files, "b") is not None
    assert write(files, "c") is None
    assert write(SideFiles(folder, size // 2), "d") is None
    registry = WeightRegistry(files)
    assert registry.materialize("c", FLOAT, (COUNT,), ramp).storage.kind == "private"
    assert registry.materialize("a", FLOAT, (COUNT,), ramp).storage.kind == "derived"


def test_the_folder_is_not_searched_for_every_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[Path] = []
    monkeypatch.setattr(draft, "sweep_drafts", searches.append)
    files = SideFiles(folder)
    for number in range(20):
        assert write(files, str(number)) is not None
    assert len(searches) == 1


@pytest.mark.parametrize(
    ("free", "limit"), [(10 << 30, 5 << 30), (100 << 30, 16 << 30), (1000 << 30, 100 << 30)]
)
def test_the_default_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, free: int, limit: int
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free - 100))
    assert SideFiles(folder)._limit(used=100) == limit
    assert SideFiles(folder, 7)._limit(used=100) == 7


def test_the_environment_says_where_and_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TENONNX_CACHE_SIZE", "12345")
    files = SideFiles.from_environment()
    assert (files.folder, files.limit) == (tmp_path / "weights", 12345)
    monkeypatch.setenv("TENONNX_CACHE_SIZE", "12 GB")
    with pytest.raises(InvalidArgument, match="TENONNX_CACHE_SIZE must be a number of bytes"):
        SideFiles.from_environment()
    monkeypatch.setenv("TENONNX_CACHE", "0")
    assert SideFiles.from_environment().folder is None
    monkeypatch.delenv("TENONNX_CACHE")
    monkeypatch.delenv("TENONNX_CACHE_SIZE")
    monkeypatch.delenv("TENONNX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert SideFiles.from_environment().folder == tmp_path / "xdg" / "tenonnx" / "weights"


def test_switched_off_everything_is_private() -> None:
    registry = WeightRegistry(SideFiles(None))
    weight = registry.materialize("key", FLOAT, (COUNT,), ramp)
    assert weight.storage.kind == "private"
    np.testing.assert_array_equal(weight.array, np.arange(COUNT))
    SideFiles(None).clear()


def test_another_release_starts_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(SideFiles(folder))
    monkeypatch.setattr(tenonnx, "__version__", "99.0")
    assert SideFiles(folder).find("key", "name") is None


def test_clear_deletes_but_what_is_mapped_stays(folder: Path) -> None:
    files = SideFiles(folder)
    found = write(files)
    files.clear()
    assert names(folder) == []
    np.testing.assert_array_equal(content(found), np.arange(COUNT))
    assert SideFiles(folder).find("key", "name") is None


def falls_back_with_one_warning(
    files: SideFiles, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    registry = WeightRegistry(files)
    with caplog.at_level(logging.WARNING, "tenonnx"):
        for key in "abc":
            weight = registry.materialize(key, FLOAT, (COUNT,), ramp)
            assert weight.storage.kind == "private"
            np.testing.assert_array_equal(weight.array, np.arange(COUNT))
            derived = registry.derive(key + key, functools.partial(np.full, COUNT, 2.0))
            assert derived.storage.kind == "private"
    assert len(caplog.messages) == 1
    assert reason in caplog.messages[0]
    assert "Set TENONNX_CACHE_DIR" in caplog.messages[0]


def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    falls_back_with_one_warning(SideFiles(tmp_path / "file" / "side"), caplog, "Not a directory")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    def full(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", full)
    falls_back_with_one_warning(SideFiles(folder), caplog, os.strerror(code))
    assert names(folder) == []


@pytest.mark.parametrize("broken", ["pwrite", "rename", "flock"])
def test_an_error_at_the_last_moment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    owner = {"pwrite": os, "rename": Path, "flock": fcntl}[broken]
    monkeypatch.setattr(owner, broken, fail)
    falls_back_with_one_warning(SideFiles(folder), caplog, os.strerror(errno.EIO))
    assert ".weight" not in names(folder)


def test_a_file_size_limit_of_the_process(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIDE_FILE_BYTES // 2, before[1]))
    try:
        falls_back_with_one_warning(SideFiles(folder), caplog, "File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(folder) == []


def test_a_file_system_that_cannot_reserve_space(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    count = (3 << 20) // 4 + 1
    np.testing.assert_array_equal(content(write(SideFiles(folder), count=count)), np.arange(count))


@pytest.mark.parametrize(("rights", "said"), [(0o555, "True None"), (0o444, "False None")])
def test_a_folder_of_another_user_is_read_but_not_written(
    folder: Path, rights: int, said: str
) -> None:
    write(SideFiles(folder))
    # By a relative path, for above the folder there may be some that only this user may search.
    script = f"""
import os, onnx_ir as ir
from tenonnx.weights.sidefile import SideFiles
if os.geteuid() == 0:
    os.setuid(65534)
files = SideFiles({folder.name!r})
print(files.find("key", "name") is not None, files.write("x", "x", ir.DataType.FLOAT, (9,), min))
"""
    (path,) = folder.iterdir()
    path.chmod(0o444)
    folder.parent.chmod(0o755)
    folder.chmod(rights)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=folder.parent
    )
    folder.chmod(0o755)
    assert done.stdout.split() == said.split(), done.stderr
    assert "Permission denied" in done.stderr


def test_an_error_of_the_filler_is_the_callers(folder: Path) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no such layout")

    with pytest.raises(ValueError, match="no such layout"):
        SideFiles(folder).write("key", "name", FLOAT, (COUNT,), fail)
    assert names(folder) == []
    assert write(SideFiles(folder)) is not None


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
    assert time.monotonic() - begin < draft.PATIENCE / 2


def test_patience_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "PATIENCE", 0.1)
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
