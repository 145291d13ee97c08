"""The files of compiled kernels: by which sources they are known, and how long they are kept."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenonnx.weights.folder import cache_root
from tenonnx_cpu.jit import runtime
from tenonnx_cpu.jit.code import cache, code_object, sources

DAY = 24 * 3600


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package like this one, whose module ``a`` imports ``b``, which imports ``c``."""
    root = tmp_path / "tenonnx_cpu"
    root.mkdir()
    (root / "a.py").write_text("from tenonnx_cpu import b\n")
    (root / "b.py").write_text("from tenonnx_cpu.c import x\n")
    (root / "c.py").write_text("x = 1\n")
    (root / "alone.py").write_text("y = 1\n")
    monkeypatch.setattr(sources, "ROOT", root)
    monkeypatch.setattr(sources, "BEGAN", time.time_ns() + DAY * 10**9)
    sources._modules.cache_clear()
    yield root
    sources._modules.cache_clear()


def stamps(index: Path, root: Path) -> dict[str, str]:
    found = sources.Sources(index)
    return {path.stem: found.stamp(path) for path in sorted(root.glob("*.py"))}


def test_a_stamp_depends_on_all_that_is_imported(package: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    before = stamps(index, package)
    assert len(set(before.values())) == 4
    (package / "c.py").write_text("x = 2\n")
    after = stamps(index, package)
    assert {name for name in before if before[name] != after[name]} == {"a", "b", "c"}
    assert stamps(tmp_path / "another", package) == after


def test_files_that_the_index_knows_are_not_read(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    before = stamps(index, package)
    monkeypatch.setattr(sources, "_look_at", lambda *_: pytest.fail("a file was read"))
    assert stamps(index, package) == before


def installed_index(package: Path, folder: Path) -> Path:
    """Return the index that comes with the package's kernels, of which there is one."""
    (package / "jit").mkdir()
    (package / "jit" / "kernel.py").write_text("from tenonnx_cpu.a import y\n")
    (folder / "kernels").mkdir()
    sources.write_index(folder / "kernels")
    return folder / "kernels" / sources.INDEX


def test_an_installed_index_says_what_files_import_that_are_as_they_were(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = installed_index(package, tmp_path)
    before = sources.Sources(tmp_path / "empty").stamp(package / "a.py")
    with monkeypatch.context() as patch:
        patch.setattr(sources, "IMPORT", None)
        assert sources.Sources(tmp_path / "index", installed).stamp(package / "a.py") == before
    (package / "c.py").write_text("x = 2\n")  # as long as before
    found = sources.Sources(tmp_path / "another", installed)
    assert found.stamp(package / "a.py") != before
    assert sources._read(tmp_path / "another").keys() == {"a.py", "b.py", "c.py"}


def test_files_that_are_as_they_were_installed_are_not_read(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = installed_index(package, tmp_path)
    before, listed = stamps(tmp_path / "index", package), time.time_ns()
    with monkeypatch.context() as patch:
        patch.setattr(sources, "_look_at", lambda *_: pytest.fail("a file was read"))
        found = sources.Sources(tmp_path / "another", installed, listed)
        assert found.stamp(package / "a.py") == before["a"]
    assert not (tmp_path / "another").exists()  # it would say the same
    for seconds in (-1, sources.INSTALLING / 1e9 + 1):
        (package / "c.py").write_text("x = 2\n")  # as long as before
        os.utime(package / "c.py", (listed / 1e9 - seconds,) * 2)
        found = sources.Sources(tmp_path / "another", installed, listed)
        assert found.stamp(package / "a.py") != before["a"]
    (package / "c.py").write_text("x = 10\n")
    os.utime(package / "c.py", (listed / 1e9 - 1,) * 2)
    found = sources.Sources(tmp_path / "third", installed, listed)
    assert found.stamp(package / "a.py") != before["a"]


@pytest.mark.parametrize("content", [b"", b"1\nnonsense", b"a.py 1 2 b.py"])
def test_an_index_that_is_not_whole_is_none(content: bytes, package: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    before = stamps(index, package)
    index.write_bytes(content or index.read_bytes()[:-1])
    assert stamps(index, package) == before


def test_nobody_relies_on_a_file_that_is_newer_than_the_process(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    stamps(index, package)
    monkeypatch.setattr(sources, "BEGAN", 0)
    for path in (index, tmp_path / "another"):
        with pytest.raises(sources.Changed, match=r"a\.py has changed since this process began"):
            sources.Sources(path).stamp(package / "a.py")
    assert not (tmp_path / "another").exists()


def test_what_is_compiled_is_of_the_source_that_its_stamp_says(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sources.Sources(tmp_path / "index")
    found.stamp(package / "a.py")
    time.sleep(0.05)
    monkeypatch.setattr(sources, "BEGAN", time.time_ns() - 20_000_000)
    (package / "alone.py").write_text("y = 2\n")
    found.refuse_changed()
    (package / "c.py").write_text("x = 2\n")
    with pytest.raises(sources.Changed, match=r"c\.py has changed"):
        found.refuse_changed()


class Meanwhile(tuple[str, ...]):
    """Files and their imports; during a look-up another thread adds another file."""

    __slots__ = ()
    known: dict[str, sources.Source]

    def __iter__(self) -> Iterator[str]:
        self.known[f"new{len(self.known)}.py"] = sources.Source("1", "2", ())
        return super().__iter__()


def test_threads_may_come_to_know_files_at_the_same_time(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sources.Sources(tmp_path / "index")
    found.stamp(package / "a.py")
    monkeypatch.setattr(Meanwhile, "known", found._known, raising=False)
    found._known |= {name: sources.Source("1", "2", Meanwhile()) for name in ("d.py", "e.py")}
    found.stamp(package / "alone.py")  # whose stamp is kept with all others
    assert {"d.py", "e.py"} <= sources._read(tmp_path / "index").keys()

    def status(_: str) -> None:
        found._known[f"new{len(found._known)}.py"] = sources.Source("1", "2", ())

    monkeypatch.setattr(sources, "_status", status)
    found.refuse_changed()


def test_files_unused_for_a_month_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    for name, days in {"0.image": 0, "20.image": 20, "40.image": 40, cache.COMPILER: 40}.items():
        path = tmp_path / name
        path.write_bytes(b"x")
        os.utime(path, (time.time() - days * DAY,) * 2)
    cache.forget_unused()
    kept = {path.name for path in cache.cached_files()}
    assert kept == {"0.image", "20.image", cache.COMPILER}


@pytest.mark.skipif(not code_object.SUPPORTED, reason="there are no code objects here")
def test_an_image_that_is_loaded_counts_as_used(tmp_path: Path) -> None:
    page = os.sysconf("SC_PAGESIZE")
    path = tmp_path / "used.image"
    path.write_bytes(code_object.CodeObject(b"\xcc" * page, bytes(page), {}, (), {}).pack())
    os.utime(path, (time.time() - 20 * DAY,) * 2)
    code_object.load(path)
    assert time.time() - path.stat().st_mtime < DAY


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is platformdirs that says it")
@pytest.mark.parametrize("above", [None, "", "/somewhere/else"])
def test_the_folder_is_the_one_that_platformdirs_names(
    above: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.delenv("TENONNX_CACHE_DIR", raising=False)
    if above is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", above)
    assert cache_root() == platformdirs.user_cache_dir("tenonnx")
    monkeypatch.setenv("TENONNX_CACHE_DIR", "given")
    assert cache_root() == "given"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is platformdirs that says it")
def test_a_user_without_a_home_has_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no entry: `~` stays what it is."""
    for name in ("TENONNX_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    expected = Path(tempfile.gettempdir(), f"cache-{os.getuid()}", "tenonnx")
    assert Path(cache_root()) == expected


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_nobody_is_known_to_have_compiled_into_a_folder(
    content: bytes | None, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / cache.COMPILER).write_bytes(content)
    assert cache.signed(tmp_path) is None


@pytest.mark.skipif(not runtime.has_kernels(), reason="there are no kernels here")
def test_a_plan_names_the_file_of_a_kernel_that_nobody_digests_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "KERNELS", [])
    monkeypatch.setattr(runtime, "FILES", {})
    first = runtime.JitKernel("norm.norms", "softmax")
    first.compile()
    if not first.file:
        pytest.skip("there are no code objects here")
    monkeypatch.setattr(runtime, "code_path", lambda *_: Path("gone"))
    handle, named = first.__reduce__()
    assert first.path() == Path("gone")
    runtime.KERNELS.clear()
    again = handle(*named)
    assert again.load()
    assert again.file == first.file


@pytest.mark.skipif(not runtime.has_kernels(), reason="there are no kernels here")
def test_a_kernel_whose_file_is_gone_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "KERNELS", [])
    monkeypatch.setattr(runtime, "FILES", {})
    runtime.JitKernel("norm.norms", "softmax").compile()
    runtime.KERNELS.clear()
    kernel = runtime.handle("norm.norms", "softmax", "gone.image")
    assert kernel.load() == code_object.SUPPORTED
    assert kernel.file != "gone.image"
