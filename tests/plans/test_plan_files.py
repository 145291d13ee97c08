"""Files of plans that are damaged, hostile or not to be written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from plan_models import answers, assert_same, is_kept, opened, saved

from tenonnx.plans import files


@pytest.mark.parametrize("place", [0, 8, 70, 200, -1])
def test_damaged_files_are_made_again(tmp_path: Path, place: int) -> None:
    path = saved(tmp_path / "model.onnx")
    first = opened(path)
    (kept,) = files.files()
    content = bytearray(kept.read_bytes())
    content[place] ^= 1
    kept.write_bytes(content)
    second = opened(path)
    assert not is_kept(second)
    assert_same(answers(second), answers(first))
    assert is_kept(opened(path))
    for size in (0, 4, 60, 120, len(content) // 2):
        kept.write_bytes(content[:size])
        assert not is_kept(opened(path))


class Evil:
    """Would run a command when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


def test_files_name_no_other_code(tmp_path: Path) -> None:
    import pickle

    path = saved(tmp_path / "model.onnx")
    opened(path)
    (kept,) = files.files()
    found = files.read(kept)
    checks = bytes(found.checks)
    evil = pickle.dumps(Evil(tmp_path / "evil"))
    for parts in ((checks, evil), (evil, bytes(found.parts))):
        kept.write_bytes(b"".join(files.pieces(*parts, [])))
        assert not is_kept(opened(path))
        assert not (tmp_path / "evil").exists()


@pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")
def test_files_that_others_may_write_are_not_used(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")
    opened(path)
    (kept,) = files.files()
    kept.chmod(0o666)
    assert not is_kept(opened(path))


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path / "file"))
    path = saved(tmp_path / "model.onnx")
    for _ in range(2):
        session = opened(path)
        assert not is_kept(session)
        answers(session)
