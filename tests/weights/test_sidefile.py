"""Any process finds a side file whole, or not at all."""

from __future__ import annotations

import errno
import functools
import itertools
import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sides import FLOAT, content, ramp, write

from tenonnx.weights import sidefile
from tenonnx.weights.mapping import BLOCK_BYTES, Blocks
from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.sidefile import HEADER_BYTES, MAGIC, SIDE_FILE_HEADER, SideFiles, checksum_of


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
    data[SIDE_FILE_HEADER.size + 3] ^= 1


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
    data[: SIDE_FILE_HEADER.size] = SIDE_FILE_HEADER.pack(MAGIC, 0, zlib.crc32(text), len(text))
    data[SIDE_FILE_HEADER.size : SIDE_FILE_HEADER.size + len(text)] = text


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
    count = 2 * BLOCK_BYTES // 4
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


@pytest.mark.parametrize("size", [1, 7, 4096, BLOCK_BYTES, 2 * BLOCK_BYTES + 13])
def test_bytes_and_a_function_make_the_same_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    pwrite = os.pwrite

    def at_most_some(descriptor: int, content: Any, place: int) -> int:
        return pwrite(descriptor, content[:300_000], place)

    monkeypatch.setattr(os, "pwrite", at_most_some)
    # Not at a multiple of anything, as weights lie in a model's file.
    array = np.random.default_rng(size).integers(0, 256, size + 3, np.uint8)[3:]
    made = []
    for source in (Blocks(array), functools.partial(np.copyto, src=array)):
        assert (
            SideFiles(folder).write("key", "name", ir.DataType.UINT8, (size,), source) is not None
        )
        (path,) = folder.iterdir()
        made.append(path.read_bytes())
        path.unlink()
    assert made[0] == made[1]
    assert made[0][HEADER_BYTES:] == array.tobytes()


def test_bytes_that_cannot_all_be_written_are_kept_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = np.arange(3 * BLOCK_BYTES + 1, dtype=np.uint8)
    path = folder.parent / "weights.bin"
    path.write_bytes(data.tobytes())
    registry = WeightRegistry(SideFiles(folder))
    weight = registry.view(registry.map(path), 1, 3 * BLOCK_BYTES, FLOAT, (3 * BLOCK_BYTES // 4,))
    pwrite, calls = os.pwrite, itertools.count()

    def full_at_last(descriptor: int, content: Any, place: int) -> int:
        if next(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, content, place)

    monkeypatch.setattr(os, "pwrite", full_at_last)
    aligned = registry.aligned(weight)
    assert aligned.storage.kind == "private"
    assert aligned.array.tobytes() == data[1:].tobytes()
    assert not [*folder.iterdir()]


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
