"""The hooks for PyInstaller name every module that is imported by a name in a string."""

from __future__ import annotations

import ast
import importlib.metadata
import runpy
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from sources import PACKAGES
from tenonnx_deploy import pyinstaller


def own_modules() -> dict[str, Path]:
    """The modules in this tree by name."""
    found = {}
    for package in PACKAGES.values():
        for file in package.rglob("*.py"):
            parts = file.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def named_in(file: Path, package: str) -> Iterator[str]:
    """Name in a file's strings that may be of modules: absolute, and within a package."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for word in node.value.split():
                name = word.partition(":")[0]
                yield from (name, f"{package}.{name}")


def test_modules_named_in_strings() -> None:
    own, listed = own_modules(), {*pyinstaller.modules()}
    packages = {*pyinstaller.RUNTIME, *pyinstaller.plugins()}
    named = {
        name
        for module, file in own.items()
        if (package := module.partition(".")[0]) in packages and module in listed
        for name in named_in(file, package)
        if name in own and name.partition(".")[0] in packages
    }
    assert len(named) > 100
    apart = tuple(f"{name}." for name in pyinstaller.LEFT_OUT_MODULES)
    assert {n for n in named - listed if not f"{n}.".startswith(apart)} == set()


def test_every_module_of_a_package_is_listed() -> None:
    packages = {*pyinstaller.RUNTIME, *pyinstaller.plugins()}
    apart = tuple(f"{name}." for name in pyinstaller.LEFT_OUT_MODULES)
    own = {n for n in own_modules() if n.partition(".")[0] in packages}
    own = {n for n in own if not f"{n}.".startswith(apart) and "-" not in n}
    assert own == {n for n in pyinstaller.modules() if n.startswith("tenonnx")}


def test_plugins_are_those_of_entry_points() -> None:
    entries = importlib.metadata.entry_points(group="tenonnx")
    assert {entry.module.partition(".")[0] for entry in entries} == {*pyinstaller.plugins()}
    assert pyinstaller.plugins()["tenonnx_cpu"] == "tenonnx"


def test_packages_with_kernels_alone_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A distribution may announce kernels and nothing else."""
    metadata = tmp_path / "vectors-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vectors\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[tenonnx.kernels]\nvec = vectors.calls\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert pyinstaller.plugins()["vectors"] == "vectors"


def test_files_of_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as PyInstaller runs them, over a stand-in for it."""
    hooks = types.ModuleType("PyInstaller.utils.hooks")
    vars(hooks).update(
        collect_data_files=lambda package: [("data", package)],
        collect_dynamic_libs=lambda package, search_patterns: [(package, *search_patterns)],
        collect_submodules=lambda package: [f"{package}.inner"],
        copy_metadata=lambda name, recursive: [("metadata", name, recursive)],
    )
    for name in ("PyInstaller", "PyInstaller.utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, hooks.__name__, hooks)
    (folder,) = pyinstaller.hook_dirs()
    found = runpy.run_path(f"{folder}/hook-tenonnx.py")
    assert {"tenonnx_cpu.listing", "tenonnx.session", "tenonnx_fold"} <= {*found["hiddenimports"]}
    assert ("data", "tenonnx_cpu") in found["datas"]
    assert ("metadata", "tenonnx", True) in found["datas"]
    assert found["module_collection_mode"]["tenonnx_cpu"] == "pyz+py"
    stand_ins = runpy.run_path(f"{folder}/hook-tenonnx.as_onnxruntime.py")
    assert stand_ins["hiddenimports"] == ["tenonnx.as_onnxruntime.inner"]
    kernels = runpy.run_path(f"{folder}/hook-tenonnx_cpu.py")
    assert "numba" in kernels["excludedimports"]
    assert ("tenonnx_cpu", "*.so") in found["binaries"]
