"""Side files that somebody else may have written are not mapped."""

from __future__ import annotations

import logging
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sides import COUNT, FLOAT, names, ramp, write

from planting import FILES, FOLDERS, to_pipe
from tenonnx.weights import trusted
from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.sidefile import MAGIC, SIDE_FILE_HEADER, SideFiles


@pytest.fixture
def planted(folder: Path) -> Path:
    """A side file that is whole, with other numbers in it than are asked for."""
    SideFiles(folder).write("key", "name", FLOAT, (COUNT,), lambda out: np.copyto(out, 666))
    return Path(SideFiles(folder)._path("key"))


def answers(folder: Path) -> str:
    """Ask for the weight; return where it is then."""
    weight = WeightRegistry(SideFiles(folder)).materialize("key", FLOAT, (COUNT,), ramp)
    np.testing.assert_array_equal(weight.array, np.arange(COUNT))
    return weight.storage.kind


@pytest.mark.parametrize("plant", FILES)
def test_planted_files(plant: str, planted: Path, caplog: pytest.LogCaptureFixture) -> None:
    change, said = FILES[plant]
    change(planted)
    with caplog.at_level(logging.WARNING, "tenonnx"):
        kinds = [answers(planted.parent) for _ in range(2)]
    assert kinds == ["private" if plant == "folder" else "derived"] * 2
    (message,) = caplog.messages
    assert message == f"{planted} is not used, because it {said}: delete it"


@pytest.mark.parametrize("plant", FOLDERS)
def test_planted_folders(plant: str, planted: Path, caplog: pytest.LogCaptureFixture) -> None:
    change, said = FOLDERS[plant]
    before = planted.read_bytes()
    change(planted.parent)
    trusted._faults.clear()
    with caplog.at_level(logging.WARNING, "tenonnx"):
        assert [answers(planted.parent) for _ in range(2)] == ["private"] * 2
        files = SideFiles(planted.parent)
        assert files.files() == []
        files.clear()
    assert planted.read_bytes() == before
    (message,) = caplog.messages
    assert said in message


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_planted_drafts(kind: str, folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    draft = Path(SideFiles(folder)._path("key")).with_suffix(".draft")
    (tmp_path / "victim").write_bytes(b"content")
    draft.symlink_to(tmp_path / "victim")
    if kind == "pipe":
        to_pipe(draft)
    assert answers(folder) == "derived"
    assert names(folder) == [".weight"]
    assert (tmp_path / "victim").read_bytes() == b"content"


@pytest.mark.parametrize(
    "numbers",
    [b"", b"1", b"1 -1 -%d" % COUNT, b"1 x", b"99 1", b"8 %d" % COUNT, b"1 " + b"9" * 4000],
)
def test_headers_that_are_whole_and_wrong(numbers: bytes, planted: Path) -> None:
    content = bytearray(planted.read_bytes())
    _, checksum, _, _ = SIDE_FILE_HEADER.unpack_from(content)
    text = numbers + b"\nkey"
    content[: SIDE_FILE_HEADER.size + len(text)] = (
        SIDE_FILE_HEADER.pack(MAGIC, checksum, zlib.crc32(text), len(text)) + text
    )
    planted.write_bytes(content)
    assert SideFiles(planted.parent).find("key", "name") is None
    assert answers(planted.parent) == "derived"


def test_a_header_that_claims_to_be_longer_than_it_is(planted: Path) -> None:
    content: Any = bytearray(planted.read_bytes())
    struct.pack_into("<I", content, SIDE_FILE_HEADER.size - 4, 0xFFFFFFFF)
    planted.write_bytes(content)
    assert SideFiles(planted.parent).find("key", "name") is None


def test_another_weights_file(planted: Path) -> None:
    write(SideFiles(planted.parent), "other")
    Path(SideFiles(planted.parent)._path("other")).replace(planted)
    assert SideFiles(planted.parent).find("key", "name") is None
