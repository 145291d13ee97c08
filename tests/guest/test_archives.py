"""A program in a plain zip says why it cannot run, in place of an error of a file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from guest.separate import MODEL, SOURCES, Program

OPEN = """
import sys
sys.path = [path for path in sys.path if path not in sys.argv[3:]]
sys.path.insert(0, sys.argv[2])
import tenonnx
try:
    tenonnx.InferenceSession(sys.argv[1])
except tenonnx.EPFail as error:
    print(error)
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The packages of a small program, as zipapp packs them."""
    path = tmp_path_factory.mktemp("archive") / "program.pyz"
    with zipfile.ZipFile(path, "w") as packed:
        for folder in map(Path, SOURCES):
            for package in ("tenonnx", "tenonnx_array", "tenonnx_cpu"):
                for file in folder.glob(f"{package}/**/*.py*"):
                    packed.write(file, file.relative_to(folder))
        packed.writestr("tenonnx-1.dist-info/METADATA", "Name: tenonnx\nVersion: 1\n")
        packed.writestr("tenonnx-1.dist-info/entry_points.txt", "[tenonnx]\ncpu = tenonnx_cpu\n")
    return str(path)


def test_a_zip_says_that_it_holds_no_kernels(program: Program, archive: str) -> None:
    told = program("-c", OPEN, MODEL, archive, *SOURCES, TENONNX_CACHE="0")
    assert f"CPUExecutionProvider: {Path(archive, 'tenonnx_cpu')} is in an archive" in told
    assert "shiv or pex" in told
