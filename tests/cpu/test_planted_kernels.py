"""Kernels that somebody else may have written are neither run nor waited for."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import FLOAT, model, node, value
from planting import FILES, FOLDERS
from tenonnx_cpu.jit.code import code_object, library_file
from tenonnx_cpu.jit.code.cache import COMPILER
from tenonnx_cpu.jit.code.header import Header, unpack

pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(not code_object.SUPPORTED, reason="no code objects are made here")

CHILD = """
import json, logging, sys
if not int(sys.argv[2]):
    sys.modules["llvmlite"] = None  # numba cannot be imported
import numpy as np
import tenonnx
from tenonnx_cpu.jit import runtime
from tenonnx_cpu.jit.code import code_object
said = []
logger = logging.getLogger("tenonnx.cache")
logger.addHandler(logging.NullHandler())
logger.handlers[0].handle = lambda record: said.append(record.getMessage())
session = tenonnx.InferenceSession(sys.argv[1])
x = np.arange(80, dtype=np.float32).reshape(1, 5, 4, 4)
y = session.run(None, {"x": x})[0]
ready = sorted(str(kernel) for kernel in runtime.KERNELS if kernel.run is not None)
print(json.dumps([y.ravel().tolist(), ready, said, list(code_object._loaded)]))
"""
MEANS = [7.5 + 16 * i for i in range(5)]
PAGE = os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 4096


def run(path: Path, folder: Path, compiling: bool = False) -> list[list[str]]:
    """Run the model in a process of its own; return its kernels, warnings and images."""
    paths = os.pathsep.join(filter(None, sys.path))
    mode = {"NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": paths}
    mode |= {"TENONNX_JIT": "compile" if compiling else "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(int(compiling))],
        env=os.environ | mode, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    y, *found = json.loads(done.stdout)
    assert y == MEANS
    return found


@pytest.fixture(scope="module")
def pooling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "pooling.onnx"
    shape = [1, 5, 4, 4]
    onnx.save(
        model([node("GlobalAveragePool", "x", "y")], [value("x", FLOAT, shape)], [value("y")]), path
    )
    return path


@pytest.fixture(scope="module")
def whole(pooling: Path, kernels: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has the model's kernels, and no others."""
    ready, _, loaded = run(pooling, Path(kernels), compiling=True)
    assert len(ready) >= 2
    folder = tmp_path_factory.mktemp("whole")
    (folder / "tenonnx").mkdir()
    for name in (COMPILER, *loaded):
        shutil.copy(Path(kernels, "tenonnx", name), folder / "tenonnx")
    assert run(pooling, folder)[0] == ready
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(whole, tmp_path / "numba"), "tenonnx")


@pytest.mark.parametrize("plant", FILES)
def test_planted_files(plant: str, pooling: Path, folder: Path) -> None:
    change, what = FILES[plant]
    for path in list(folder.iterdir()):
        change(path)
    ready, said, _ = run(pooling, folder.parent)
    assert ready == []
    assert len(said) == 1
    assert f"is not used, because it {what}: delete it" in said[0]


@pytest.mark.parametrize("plant", FOLDERS)
def test_planted_folders(plant: str, pooling: Path, folder: Path) -> None:
    change, what = FOLDERS[plant]
    before = {path.name for path in folder.iterdir()}
    change(folder)
    ready, said, _ = run(pooling, folder.parent)
    assert ready == []
    assert len(said) == 1
    assert what in said[0]
    assert "NUMBA_CACHE_DIR" in said[0]
    assert {path.name for path in folder.iterdir()} == before


def sealed(header: bytes, rest: bytes) -> bytes:
    """Return a code object's file with a header, and a checksum that is right."""
    front = code_object.FRONT
    start = -(-(front.size + len(header)) // PAGE) * PAGE
    whole = bytearray(
        front.pack(code_object.MARK, 0, start, start + len(rest))
        + header.ljust(start - front.size, b"\0")
        + rest
    )
    struct.pack_into("<I", whole, len(code_object.MARK), zlib.crc32(whole[code_object.CHECKED :]))
    return bytes(whole)


def wrong_header(content: bytes) -> bytes:
    start = code_object.FRONT.unpack_from(content)[2]
    return sealed(b"\xff" * 100, content[start:])


def other_image(_: bytes) -> bytes:
    return code_object.CodeObject(b"\xcc" * PAGE, bytes(PAGE), {"tenonnx_other": 0}, (), {}).pack()


@pytest.mark.parametrize("damage", [wrong_header, other_image])
def test_kernels_whose_checksum_alone_is_right(
    damage: Callable[[bytes], bytes], pooling: Path, folder: Path
) -> None:
    for path in folder.glob("*.image"):
        path.write_bytes(damage(path.read_bytes()))
    assert run(pooling, folder.parent) == [[], [], []]


@pytest.mark.parametrize("plant", ["header", "folder"])
def test_what_is_of_no_use_is_made_anew(plant: str, pooling: Path, folder: Path) -> None:
    """It is replaced for later processes, unless a folder is in its place."""
    (path,) = folder.glob("conv.pool.average_f32-*")
    if plant == "header":
        path.write_bytes(wrong_header(path.read_bytes()))
    else:
        FILES[plant][0](path)
    ready, said, _ = run(pooling, folder.parent, compiling=True)
    assert "conv.pool.average_f32" in ready
    assert len(said) == (plant == "folder")
    again, said, _ = run(pooling, folder.parent)
    assert ("conv.pool.average_f32" in again) == (plant == "header")
    assert len(said) == (plant == "folder")


def image(**changes: Any) -> Header:
    given = {"exports": {}, "inside": (), "outside": {}, "needs": ()} | changes
    return Header(given.pop("code", PAGE), **given)


@pytest.mark.parametrize(
    "changes",
    [
        {"code": 0},
        {"code": PAGE + 1},
        {"code": 4 * PAGE},
        {"exports": {"a": 2 * PAGE}},
        {"inside": (0,)},
        {"inside": (2 * PAGE - 7,)},
        {"outside": {"a": (PAGE - 1,)}},
        {"outside": {"a": (2**32 - 1,)}},
        {"needs": ("../a.image",)},
        {"needs": ("a.image", "a.image")},
    ],
)
def test_headers_that_say_what_cannot_be(changes: dict[str, Any], tmp_path: Path) -> None:
    header = image(**changes).pack()
    with pytest.raises(code_object.Damaged):
        unpack(memoryview(header.ljust(PAGE, b"\0")), 2 * PAGE)
    path = tmp_path / "wrong.image"
    path.write_bytes(sealed(header, bytes(2 * PAGE)))
    assert code_object.find(path) is None


def test_an_image_that_needs_itself(tmp_path: Path) -> None:
    for name, needed in (("a", "b"), ("b", "a")):
        header = image(needs=(f"{needed}.image",)).pack()
        (tmp_path / f"{name}.image").write_bytes(sealed(header, bytes(2 * PAGE)))
    assert code_object.find(tmp_path / "a.image") is None


@settings(max_examples=200)
@given(changes=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_header_is_read_or_refused(changes: list[tuple[int, int]]) -> None:
    header = image(exports={"one": 5}, inside=(PAGE,), outside={"two": (PAGE + 8,)}, needs=("n",))
    content = bytearray(header.pack().ljust(PAGE, b"\0"))
    for place, byte in changes:
        content[place] = byte
    try:
        found = unpack(memoryview(content), 2 * PAGE)
    except code_object.Damaged:
        return
    words = [*found.inside, *(word for words in found.outside.values() for word in words)]
    assert all(found.code <= word <= 2 * PAGE - 8 for word in words)
    assert 0 < found.code <= 2 * PAGE


def test_numbas_libraries_are_read_whole_or_not(tmp_path: Path) -> None:
    library: library_file.Library = ("name", "object", (b"code", b"bitcode"))
    content = library_file.pack(library)
    path = tmp_path / "a.library"
    path.write_bytes(content)
    assert library_file.read(path) == library
    for damaged in (b"", content[:-1], content + b"x", content[:30], b"\x80\x04N."):
        path.write_bytes(damaged)
        assert library_file.read(path) is None
    path.write_bytes(content)
    path.chmod(0o666)
    assert library_file.read(path) is None
    assert library_file.read(tmp_path / "missing") is None


def test_header_round_trip() -> None:
    header = image(exports={"a": 1, "b": 2}, inside=(PAGE,), outside={"c": (PAGE, PAGE + 8)})
    assert unpack(memoryview(header.pack().ljust(PAGE, b"\0")), 2 * PAGE) == header
