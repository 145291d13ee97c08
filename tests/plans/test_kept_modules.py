"""Modules from one file: as Python would import them, or not from there at all."""

from __future__ import annotations

import importlib
import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from plan_models import saved

from tenonnx import kept_modules
from tenonnx.keeping_modules import keep
from tenonnx.kept_modules import Direct, DirectFinder, Finder, state_of
from tenonnx.weights.trusted import Untrusted

NAMES = "tenonnx_extra", "tenonnx_extra.inner", "tenonnx_extra.inner.leaf", "tenonnx_extra.plain"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package whose modules are imported."""
    inner = tmp_path / "tenonnx_extra" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").write_text("")
    (inner / "leaf.py").write_text("value = 'leaf'\n")
    (inner.parent / "plain.py").write_text("value = 'plain'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in NAMES:
        __import__(name)
    yield inner.parent
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def file(package: Path) -> str:
    """A file that has them."""
    keep(path := str(package.parent / "these.modules"))
    return path


def found(finder: Finder, name: str, package: Path) -> bool:
    above = package.joinpath(*name.split(".")[1:-1])
    return finder.find_spec(name, [str(above)]) is not None


def test_modules_are_as_python_imports_them(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: vars(sys.modules.pop(name)) for name in NAMES}
    monkeypatch.setattr(sys, "meta_path", [Finder(file), *sys.meta_path])
    for name in NAMES:
        __import__(name)
    for name in NAMES:
        now = vars(sys.modules[name])
        for fact in ("__file__", "__cached__", "__package__", "__path__", "value"):
            assert now.get(fact) == before[name].get(fact)
        assert isinstance(now["__loader__"], kept_modules.Loader) is ("." in name)
        assert now["__loader__"].get_source(name) == Path(now["__file__"]).read_text()
        assert now["__loader__"].get_code(name) is not None


@pytest.mark.usefixtures("package")
def test_modules_in_folders_are_as_python_imports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: vars(sys.modules.pop(name)) for name in NAMES}
    monkeypatch.setattr(sys, "meta_path", [DirectFinder(), *sys.meta_path])
    for name in NAMES:
        __import__(name)
        now = vars(sys.modules[name])
        for fact in ("__file__", "__cached__", "__package__", "__path__", "value"):
            assert now.get(fact) == before[name].get(fact)
        assert (type(now["__loader__"]) is Direct) is (name in (NAMES[2], NAMES[3]))
        assert now["__loader__"].get_source(name) == Path(now["__file__"]).read_text()
        assert now["__loader__"].get_code(name) is not None


@pytest.mark.parametrize("bytecode", ["none", "cut", "old", "of another Python", "elsewhere"])
def test_bytecode_that_does_not_fit_is_not_run(
    package: Path, bytecode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = package / "plain.py"
    file = Path(str(sys.modules.pop(NAMES[3]).__cached__))
    py_compile.compile(str(source), cfile=str(file))
    if bytecode == "none":
        file.unlink()
    elif bytecode == "cut":
        file.write_bytes(file.read_bytes()[:10])
    elif bytecode == "of another Python":
        file.write_bytes(b"abcd" + file.read_bytes()[4:])
    elif bytecode == "elsewhere":
        py_compile.compile(str(source), dfile="/somewhere/else.py", cfile=str(file))
    else:
        source.write_text("value = 'newer one'\n")
    monkeypatch.setattr(sys, "meta_path", [DirectFinder(), *sys.meta_path])
    module = importlib.import_module(NAMES[3])
    assert type(module.__loader__) is Direct
    assert module.value == ("newer one" if bytecode == "old" else "plain")
    assert module.__spec__.loader.get_code(NAMES[3]).co_filename == str(source)  # type: ignore[union-attr]


def test_a_changed_source_is_imported_anew(file: str, package: Path) -> None:
    finder = Finder(file)
    assert all(found(finder, name, package) for name in NAMES[1:])
    (package / "plain.py").write_text("value = 'other'\n")  # of the same size
    os.utime(package / "plain.py", ns=(0, finder.entries[NAMES[3]][3][2]))  # and time
    assert not found(finder, NAMES[3], package)
    (package / "inner" / "leaf.py").unlink()
    assert not found(finder, NAMES[2], package)
    assert not found(finder, "tenonnx_extra.none", package)


def test_a_package_elsewhere_is_another_one(file: str, package: Path, tmp_path: Path) -> None:
    finder = Finder(file)
    assert finder.find_spec(NAMES[3], [str(tmp_path / "elsewhere"), str(package)]) is None
    assert finder.find_spec(NAMES[0], None) is None


@pytest.mark.parametrize("place", [0, 9, 14, 20, 40])
def test_a_damaged_file_is_refused(file: str, place: int) -> None:
    content = bytearray(Path(file).read_bytes())
    content[place] ^= 1
    Path(file).write_bytes(content)
    with pytest.raises(ValueError, match="whole file"):
        Finder(file)


def test_a_short_file_is_refused(file: str) -> None:
    content = Path(file).read_bytes()
    for size in (1, 10, 30, len(content) - 1):
        Path(file).write_bytes(content[:size])
        with pytest.raises(Exception, match=r"whole file|unpack"):
            Finder(file)


@pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")
def test_a_file_that_others_may_write_is_not_used(file: str) -> None:
    Path(file).chmod(0o666)
    with pytest.raises(Untrusted):
        Finder(file)


def test_what_is_kept_stays_and_what_is_gone_goes(
    file: str, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_modules, "_finder", Finder(file))
    sys.modules.pop(NAMES[3])
    (package / "inner" / "leaf.py").write_text("value = 'other leaf'\n")
    keep(file)
    entries = Finder(file).entries
    assert entries[NAMES[2]][3] == state_of(str(package / "inner" / "leaf.py"))
    assert found(Finder(file), NAMES[3], package)


OPENING = """
import json, sys
import numpy, tenonnx
session = tenonnx.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
own = {n: m for n, m in sys.modules.items() if n.startswith("tenonnx") and "." in n}
print(json.dumps([n for n, m in own.items() if type(m.__loader__).__name__ == "Loader"]))
"""


@pytest.mark.parametrize(("variable", "there"), [("SOME", True), ("TENONNX_PLANS", False)])
def test_a_second_process_has_them(tmp_path: Path, variable: str, there: bool) -> None:
    path = saved(tmp_path / "model.onnx")
    environment = {**os.environ, "TENONNX_JIT": "0", "TENONNX_PLUGINS": "", variable: "0"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    for count in range(2):
        done = subprocess.run(
            [sys.executable, "-c", OPENING, str(path)],
            env=environment, capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        assert bool(json.loads(done.stdout)) is (there and count == 1)
