"""The building of libraries: their sources, processes side by side, and what can go wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("numba")

from tenonnx_cpu.jit import library, runtime
from tenonnx_cpu.jit.aot import build as building
from tenonnx_cpu.jit.aot import linking, sources, worker
from tenonnx_cpu.jit.aot.build import BuildError, build
from tenonnx_cpu.jit.code.cpu import parse, target
from tenonnx_cpu.jit.packages import OWN, Package
from tenonnx_cpu.lazy_import import import_all

pytestmark = pytest.mark.skipif(not library.SUPPORTED, reason="no libraries are built here")

FOLD = "reduce.fold.fold"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package like this one, whose module ``a`` imports ``b``, which imports ``c``."""
    root = tmp_path / "tenonnx_cpu"
    for folder in (*sources.COMPILED_FOLDERS, "norm/kernels"):
        (root / folder).mkdir(parents=True)
    (root / "norm/__init__.py").touch()
    for name in sources.COMPILED_FILES:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    (root / "norm/kernels/a.py").write_text("from tenonnx_cpu.jit.code import b\n")
    (root / "jit/code/b.py").write_text("from tenonnx_cpu.jit.code.c import x\n")
    (root / "jit/code/c.py").write_text("x = 1\n")
    (root / "alone.py").write_text("y = 1\n")
    monkeypatch.setattr(sources, "OWN", Package("tenonnx_cpu", str(root)))
    yield root
    forget()


def forget() -> None:
    for known in (sources._content, sources._imports, sources._file_of):
        known.cache_clear()


def digests(root: Path) -> list[str]:
    forget()
    files = [root / name for name in ("norm/kernels/a.py", "jit/code/b.py", "jit/code/c.py")]
    own = sources.OWN
    return [sources.digest_of_all(own), *(sources.digest_of(str(file), own) for file in files)]


def test_a_digest_depends_on_all_that_is_imported(package: Path) -> None:
    before = digests(package)
    assert len(set(before)) == 4
    (package / "alone.py").write_text("y = 2\n")
    assert digests(package) == before
    (package / "jit/code/c.py").write_text("x = 2\n")
    assert not set(digests(package)) & set(before)
    (package / "jit/code/c.py").write_text("x = 1\n")
    (package / "norm/kernels/a.py").write_text("from tenonnx_cpu.jit.code import b, c\n")
    assert [now == then for now, then in zip(digests(package), before, strict=True)] == [
        False, False, True, True,
    ]  # fmt: skip


OF_PYTHON = {"threading_config.py", "jit/scratch.py", "jit/library.py", "jit/packages.py"}
"""Modules that are imported for Python's sake: nothing of them is compiled."""


def test_what_names_a_library_is_all_that_kernels_are_compiled_from() -> None:
    """A file that kernels import, and that did not count, would change under a built library."""
    forget()
    known = set(sources.files_of(OWN))
    allowed = known | {str(Path(OWN.root, name)) for name in OF_PYTHON}
    for name in known:
        for _, found in sources._imports(name, OWN):
            assert allowed.issuperset(found), f"{name} imports it"


def test_kernels_are_functions_of_the_files_by_which_they_are_kept() -> None:
    from tenonnx_cpu.jit.aot.objects import declared

    for name, kernel in declared().items():
        file = sources.name_of(kernel.function.__code__.co_filename)
        assert file == name.rpartition(".")[0]


def test_whoever_launches_kernels_names_all_that_there_are() -> None:
    from tenonnx_cpu.jit.aot.objects import declared

    import_all()
    assert runtime.KERNELS.keys() == declared().keys()


def built(path: Path, *kernels: str) -> tuple[dict[str, str], list[str]]:
    """Build a library of some kernels; return their errors, and what was compiled for it."""
    chosen, told = target(), list[str]()
    assert chosen is not None
    errors = build(chosen, str(path), lambda name, _: told.append(name), kernels)
    return errors, told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library of one kernel, and its objects."""
    path = tmp_path_factory.mktemp("built") / "first.so"
    errors, told = built(path, FOLD)
    assert errors == {FOLD: ""}
    assert {FOLD, "identity", "jit.threads.thread_pool.shared"} <= set(told)
    return path.parent


def test_a_library_has_what_was_asked_for_and_is_built_again_at_once(folder: Path) -> None:
    first = library.Library(str(folder / "first.so"))
    assert first.kernel(FOLD) is not None
    assert first.kernel("norm.norms.softmax") is None
    assert built(folder / "second.so", FOLD) == ({FOLD: ""}, [])
    assert library.Library(str(folder / "second.so")).kernel(FOLD) is not None


def test_objects_that_others_may_have_written_are_compiled_anew(folder: Path) -> None:
    (path,) = folder.rglob(f"{FOLD}-*.o")
    path.chmod(0o666)
    assert built(folder / "third.so", FOLD) == ({FOLD: ""}, [FOLD])
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_library_for_another_processor(tmp_path: Path) -> None:
    """It is linked here, and only there does a process open it."""
    own = target()
    assert own is not None
    other = "x86-64-v2" if own.level.architecture == "aarch64" else "armv8-a"
    path = tmp_path / "other.so"
    errors = build(parse(other), str(path), lambda *_: None, [FOLD])
    assert errors == {FOLD: ""}
    machine = int.from_bytes(path.read_bytes()[18:20], "little")
    assert machine == {"armv8-a": 183, "x86-64-v2": 62}[other]
    with pytest.raises(OSError, match=r"cannot open shared object file|wrong ELF"):
        library.Library(str(path))


def test_without_a_linker_an_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(linking, "find_spec", lambda _: None)
    monkeypatch.setattr(linking.shutil, "which", lambda _: None)
    with pytest.raises(linking.NoLinker, match=r"there is no linker for .*: pip install ziglang"):
        linking.link([], str(tmp_path / "none.so"), linking.architecture())
    monkeypatch.setattr(linking.shutil, "which", lambda name: f"/bin/{name}")
    assert linking._linker(linking.architecture()) == ["/bin/cc"]
    with pytest.raises(linking.NoLinker):
        linking._linker("riscv64")


def test_what_the_linker_says_is_told(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.o"
    wrong.write_bytes(b"no object")
    with pytest.raises(RuntimeError, match="could not link: "):
        linking.link([wrong], str(tmp_path / "none.so"), linking.architecture())
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.o"]


class FakePart:
    """A part whose process ends as its name says: ``killed``, ``wrong`` or well."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def compile(self) -> None:
        if self.name == "killed once" and not (self.folder / "once").exists():
            (self.folder / "once").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.name == "wrong":
            raise ValueError("as told")


@pytest.mark.parametrize(
    ("names", "errors"),
    [
        (["a", "killed once", "wrong", "b"], {"wrong": "ValueError: as told"}),
        (["a", "killed", "b"], {"killed": worker.KILLED}),
    ],
)
def test_what_a_process_dies_of_is_tried_once_more(
    names: list[str], errors: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_parts", {name: FakePart(name, tmp_path) for name in names})
    assert dict(worker._compile(names, 3)) == dict.fromkeys(names, "") | errors


def test_a_compiler_that_cannot_start_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "MODULE", "tenonnx_cpu.jit.no_such_module")
    with pytest.raises(BuildError, match=r"No module named tenonnx_cpu\.jit\.no_such_module"):
        built(tmp_path / "none.so")


def environment(cache: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, sys.path))
    own = {library.KERNELS_VARIABLE: str(cache), "TENONNX_JIT": "1", "PYTHONPATH": paths}
    return {**os.environ, **own, **more}


def warm_up(cache: Path, *options: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tenonnx", "warmup", *options],
        env=environment(cache, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture
def nearly(tmp_path: Path, kernels: str) -> Path:
    """A folder with the objects of all kernels but one, and without a library."""
    if not Path(kernels, building.OBJECTS).exists():
        pytest.skip("the library was not built here")
    shutil.copytree(Path(kernels, building.OBJECTS), tmp_path / "kernels" / building.OBJECTS)
    for path in (tmp_path / "kernels").rglob(f"{FOLD}-*.o"):
        path.unlink()
    return tmp_path / "kernels"


def test_warmups_at_once_and_killed_ones_leave_a_whole_library(nearly: Path, softmax: Path) -> None:
    killed = warm_up(nearly)
    time.sleep(6)
    killed.kill()
    killed.communicate()
    both = [warm_up(nearly, "--json") for _ in range(2)]
    for process in both:
        output, errors = process.communicate(timeout=400)
        assert process.returncode == 0, errors
        found = json.loads(output)["kernels"]
        assert found == dict.fromkeys(found, True)
        assert FOLD in found
    assert {path.suffix for path in nearly.iterdir() if path.is_file()} == {".so"}
    output, errors = warm_up(nearly, str(softmax)).communicate(timeout=100)
    assert f"{len(found)} kernels in the cache" in output, errors


@pytest.mark.parametrize("where", ["/proc/tenonnx", "full"])
def test_a_cache_that_cannot_be_written_is_an_error(where: str, nearly: Path) -> None:
    """Folders under /proc can be made by nobody, root included; no byte fits a limit of 0."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
    code = f"{limit if where == 'full' else ''}from tenonnx.cli import main; main(['warmup'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(nearly if where == "full" else Path(where)),
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "kernels could not be built: " in done.stderr


def test_a_numba_of_other_parts_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "own" / "numba").mkdir(parents=True)
    (tmp_path / "own" / "numba" / "__init__.py").write_text('__version__ = "99"\n')
    paths = os.pathsep.join([str(tmp_path / "own"), *filter(None, sys.path)])
    process = warm_up(tmp_path / "cache", PYTHONPATH=paths)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "cannot import name 'types' from 'numba'" in errors
    assert "Traceback" not in errors


def test_files_unused_for_a_month_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenonnx_cpu.provider import CPUExecutionProvider

    monkeypatch.setenv(library.KERNELS_VARIABLE, str(tmp_path))
    for name, days in {"0.so": 0, "objects/20.o": 20, "objects/40.o": 40}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (time.time() - days * 24 * 3600,) * 2)
    assert [path.name for path in CPUExecutionProvider.forget_unused()] == ["40.o"]
    assert {path.name for path in CPUExecutionProvider.kept_files()} == {"0.so", "20.o"}
