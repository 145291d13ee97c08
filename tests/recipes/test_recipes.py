"""Recipes are followed: what a document says is done in a copy of the project, and comes out so.

A block with ``path=FILE`` is that file of the copy, or a ``diff`` of it; one with ``try`` is run
there; one with ``try-output`` is what the block before it prints.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.aot.build import OBJECTS
from tenonnx_cpu.jit.runtime import has_numba

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "recipes"
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
COPIED = ("core", "providers", "plugins", "tools", "tests/guard", "tests/cuda", "tests/fusions")
PATHS = ("core", "providers", "plugins", "tests/guard", "tests/cuda", "tests/fusions", "tests")
COMPILER = shutil.which("g++") or shutil.which("c++")


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after the fence, and what is in it."""

    words: tuple[str, ...]
    code: str

    @property
    def file(self) -> str | None:
        return next((word[5:] for word in self.words if word.startswith("path=")), None)


def blocks(recipe: str) -> Iterator[Block]:
    for found in FENCE.finditer((RECIPES / f"{recipe}.md").read_text()):
        yield Block(tuple(found["info"].split()), found["code"])


class Copy:
    """A copy of the project, in which a recipe is followed.

    Attributes:
        files: What the recipe had written by hand.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: set[str] = set()
        ignore = shutil.ignore_patterns("__pycache__")
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=ignore)
        for path in (ROOT / "tests").glob("*.py"):
            shutil.copy(path, folder / "tests")
        paths = [str(folder / name) for name in PATHS]
        self._environment = {**os.environ, "TENONNX_JIT": "1", "TENONNX_PLUGINS": ""}
        self._environment["PYTHONPATH"] = os.pathsep.join([*paths, str(folder)])
        # Kernels that a recipe does not change are those of these sources.
        self._environment[library.KERNELS_VARIABLE] = str(folder / "compiled")
        if (found := library.find()) is not None and found.like is None:
            shutil.copytree(Path(found.path).with_name(OBJECTS), folder / "compiled" / OBJECTS)
            shutil.copy(found.path, folder / "compiled")

    def follow(self, recipe: str) -> None:
        """Do what the blocks of a recipe say, and compare what is printed."""
        printed = ""
        for block in blocks(recipe):
            if block.file is not None:
                self._write(block, block.file)
            elif "try-output" in block.words:
                assert printed.strip() == block.code.strip()
            elif "try" in block.words and "console" in block.words:
                for line in block.code.splitlines():
                    program, *arguments = line.removeprefix("$ ").split()
                    assert program == "python"
                    self.run(*arguments)
            elif "try" in block.words:
                printed = self.run("-c", block.code)

    def _write(self, block: Block, file: str) -> None:
        path = self.folder / file
        self.files.add(file)
        if "diff" not in block.words:
            assert not path.exists()
            path.write_text(block.code)
            return
        lines = block.code.splitlines(keepends=True)
        old, new = ("".join(x[1:] for x in lines if x[0] in kept) for kept in (" -", " +"))
        text = path.read_text()
        assert text.count(old) == 1, f"{file} has changed: {old}"
        path.write_text(text.replace(old, new))

    def run(self, *arguments: str) -> str:
        """Run Python there; return what it prints."""
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path / "copy")


GUARDED = """
import sys
from pathlib import Path
from driver import Job, run

for copying in (True, False):
    report = run(Job("rows_binarizer", copying, threads=2), Path(sys.argv[1]))
    assert not report.findings, report.findings
    seen = report.launches if copying else report.captured
    assert seen["ml.binarizer.binarize"]
"""


@pytest.mark.skipif(not has_numba(), reason="kernels are compiled")
@pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded by mprotect")
def test_a_kernel_is_two_files_and_rows_for_the_guards(copy: Copy, tmp_path: Path) -> None:
    copy.follow("add-a-kernel")
    assert len(copy.files) == 3
    copy.run("-c", GUARDED, str(tmp_path))


@pytest.mark.skipif(not has_numba(), reason="kernels are compiled")
def test_a_fusion_is_one_file(copy: Copy) -> None:
    copy.follow("add-a-fusion")
    assert len(copy.files) == 1


@pytest.mark.skipif(not COMPILER, reason="the provider's kernels are compiled for the host")
def test_an_operation_of_cudnn_is_two_files(copy: Copy) -> None:
    copy.follow("use-a-cudnn-operation")
    assert len(copy.files) == 2


def test_the_project_imports_the_copy(copy: Copy) -> None:
    script = "import tenonnx_cpu, tenonnx, emulated; print(tenonnx_cpu, tenonnx, emulated)"
    assert copy.run("-c", script).count(str(copy.folder)) == 3
