"""The room that side files take, and its place."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from sides import COUNT, FLOAT, content, names, ramp, write

from tenonnx.errors import InvalidArgument
from tenonnx.plan_cache import files as plans
from tenonnx.weights import draft, sidefile
from tenonnx.weights import folder as folders
from tenonnx.weights.registry import SIDE_FILE_BYTES, WeightRegistry
from tenonnx.weights.sidefile import HEADER_BYTES, SideFiles


def age(folder: Path, key: str, seconds: int) -> None:
    """Have a side file used a while ago."""
    path = Path(SideFiles(folder)._path(key))
    os.utime(path, (time.time() - seconds, path.stat().st_mtime))


def test_files_used_longest_ago_make_room(folder: Path) -> None:
    size = HEADER_BYTES + SIDE_FILE_BYTES
    for number, key in enumerate("abc"):
        write(SideFiles(folder), key)
        age(folder, key, 9 - number)
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


def test_files_that_nobody_uses_for_a_month_go(folder: Path) -> None:
    days = {"a": 31, "b": 29, "c": 31}
    for key in days:
        write(SideFiles(folder), key)
    for key in days:
        age(folder, key, days[key] * 24 * 3600)
    files = SideFiles(folder)
    assert set(files.room.prune()) == {Path(files._path("a")), Path(files._path("c"))}
    assert files.files() == [Path(files._path("b"))]


def test_plans_and_side_files_share_their_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever was used longest ago goes, and none that this process uses."""
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path))
    size = HEADER_BYTES + SIDE_FILE_BYTES
    monkeypatch.setenv("TENONNX_CACHE_SIZE", str(2 * size))
    files = SideFiles.from_environment()
    assert write(SideFiles(tmp_path / "weights"), "a") is not None
    age(tmp_path / "weights", "a", 60)
    plan = Path(plans.path_of("b" * 64) or "")
    plans.write(plan, b"", bytes(size - 1000), ())
    os.utime(plan, (time.time() - 30, plan.stat().st_mtime))
    assert write(files, "c") is not None
    assert files.files() == [Path(files._path("c"))]
    assert plan.exists()
    plans.write(plan.with_suffix(".captures"), b"", bytes(size - 1000), ())
    assert not plan.exists()
    with pytest.raises(OSError, match="no room"):
        plans.write(plan, b"", bytes(size), ())
    assert files.files() == [Path(files._path("c"))]


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
    here = folder.parent
    assert folders._free(here) == pytest.approx(shutil.disk_usage(here).free, rel=0.1)
    monkeypatch.setattr(folders, "_free", lambda _: free - 100)
    assert SideFiles(folder).room.limit_at(100) == limit
    assert SideFiles(folder, 7).room.limit_at(100) == 7


def test_the_environment_says_where_and_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TENONNX_CACHE_SIZE", "12345")
    files = SideFiles.from_environment()
    assert (files.folder, files.room.limit) == (str(tmp_path / "weights"), 12345)
    monkeypatch.setenv("TENONNX_CACHE_SIZE", "12 GB")
    with pytest.raises(InvalidArgument, match="TENONNX_CACHE_SIZE must be a number of bytes"):
        SideFiles.from_environment()
    monkeypatch.setenv("TENONNX_CACHE", "0")
    assert SideFiles.from_environment().folder is None
    monkeypatch.delenv("TENONNX_CACHE")
    monkeypatch.delenv("TENONNX_CACHE_SIZE")
    monkeypatch.delenv("TENONNX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert SideFiles.from_environment().folder == str(tmp_path / "xdg" / "tenonnx" / "weights")


def test_switched_off_everything_is_private() -> None:
    registry = WeightRegistry(SideFiles(None))
    weight = registry.materialize("key", FLOAT, (COUNT,), ramp)
    assert weight.storage.kind == "private"
    np.testing.assert_array_equal(weight.array, np.arange(COUNT))
    SideFiles(None).clear()


def test_another_release_starts_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(SideFiles(folder))
    monkeypatch.setattr(sidefile, "release", lambda: "99.0")
    assert SideFiles(folder).find("key", "name") is None


def test_clear_deletes_but_what_is_mapped_stays(folder: Path) -> None:
    files = SideFiles(folder)
    found = write(files)
    files.clear()
    assert names(folder) == []
    np.testing.assert_array_equal(content(found), np.arange(COUNT))
    assert SideFiles(folder).find("key", "name") is None
