"""Files of plans that are damaged, hostile or not to be written."""

from __future__ import annotations

import operator
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from plan_models import answers, assert_same, is_kept, opened, saved

from tenonnx.plan_cache import NotCacheable, by_reference, files


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


def plain_part(content: bytes) -> bytes:
    """Return the first pickle of a plan's parts, of plain values, for parts without arrays."""
    _, derived, _ = pickle.loads(content)
    return pickle.dumps((None, derived, (0,)))


class Evil:
    """Would run a command when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


def test_files_name_no_other_code(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")
    opened(path)
    (kept,) = files.files()
    found = files.read(kept)
    checks = bytes(found.checks)
    content = bytes(found.parts)
    evil = pickle.dumps(Evil(tmp_path / "evil"))
    for parts in ((checks, plain_part(content) + evil), (evil, content)):
        kept.write_bytes(b"".join(files.pieces(*parts, [])))
        assert not is_kept(opened(path))
        assert not (tmp_path / "evil").exists()


class Called:
    """A pickle whose loading calls a function; the result may be a function itself."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.function, self.given = function, given

    def __reduce__(self) -> Any:
        return self.function, self.given

    def __call__(self, *_: Any) -> None:
        """Be a function for pickle, which does not call it."""


NUMPY = Called(by_reference.namespace, "numpy")
RUNNERS = {
    "of_numpy": Called(by_reference.of_numpy, "testing.runstring"),
    "attrgetter": Called(Called(operator.attrgetter, "testing.runstring"), NUMPY),
}
"""Ways to numpy's function that runs code, by functions that files name."""


@pytest.mark.parametrize("way", RUNNERS)
def test_files_run_no_code_by_numpy(way: str, tmp_path: Path) -> None:
    place = tmp_path / "written"
    evil = pickle.dumps(Called(RUNNERS[way], f"open({str(place)!r}, 'w')", {}))
    path = saved(tmp_path / "model.onnx")
    opened(path)
    (kept,) = files.files()
    found = files.read(kept)
    checks, content = bytes(found.checks), bytes(found.parts)
    for parts in ((checks, plain_part(content) + evil), (evil, content)):
        kept.write_bytes(b"".join(files.pieces(*parts, [])))
        assert not is_kept(opened(path))
        assert not place.exists()


@pytest.mark.parametrize(
    "name",
    [
        *("testing.runstring", "f2py.run_main", "ctypeslib.load_library", "lib.format.open_memmap"),
        *("load", "savez", "test", "linalg.test", "linalg", "strings.np", "no_such", "a.b.c", "."),
    ],
)
def test_names_of_numpy_that_are_no_functions_of_steps(name: str) -> None:
    with pytest.raises(NotCacheable):
        by_reference.of_numpy(name)


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
