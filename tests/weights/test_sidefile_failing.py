"""Weights are private if side files cannot be written."""

from __future__ import annotations

import errno
import fcntl
import functools
import logging
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sides import COUNT, FLOAT, content, names, ramp, write

from tenonnx.weights.registry import SIDE_FILE_BYTES, WeightRegistry
from tenonnx.weights.sidefile import SideFiles


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
from tenonnx.process.distributions import release
from tenonnx.weights.sidefile import SideFiles
release()  # the metadata may be in a folder of root's alone
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
