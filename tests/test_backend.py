"""The build backend: wheels with kernels, and what becomes of an install that can have none."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DIST = "tenonnx-0.1.0.dist-info"
KERNELS = ("reduce.fold.fold", "reduce.topk.top_k")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = ROOT / "providers" / "tenonnx_cpu" / "build_backend.py"
    spec = importlib.util.spec_from_file_location("backend", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv(module.BUILD_VARIABLE, raising=False)
    monkeypatch.chdir(ROOT)
    return module


def write_plain(folder: Path) -> Path:
    """Write a wheel like setuptools' for this project."""
    path = folder / "tenonnx-0.1.0-py3-none-any.whl"
    wheel = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tenonnx/__init__.py", "")
        file.writestr(f"{DIST}/WHEEL", wheel)
        file.writestr(f"{DIST}/RECORD", "tenonnx/__init__.py,,\n")
    return path


@pytest.fixture
def plain(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have setuptools build a wheel at once."""
    monkeypatch.setattr(
        backend.build_meta, "build_wheel", lambda folder, *_: write_plain(Path(folder)).name
    )


def test_a_wheel_has_kernels_for_other_processors(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    from tenonnx_cpu.jit import library

    if not library.SUPPORTED:
        pytest.skip("there are no kernels here")
    kind = "x86-64-v3" if platform.machine() == "aarch64" else "armv8-a"
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path; from tools.backend import backend\n"
        f"made = backend.build_library({kind!r}, '0.1.0', Path('.').absolute(), {KERNELS!r})\n"
        "print(backend.with_kernels(Path('tenonnx-0.1.0-py3-none-any.whl'),"
        f" {{'tenonnx_cpu': {{{kind!r}: made}}}}, 'a_x.b_x'))"
    )
    write_plain(tmp_path)
    run = [sys.executable, "-c", script]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "tenonnx-0.1.0-py3-none-a_x.b_x.whl"
    with zipfile.ZipFile(tmp_path / done.stdout.strip()) as file:
        assert "Root-Is-Purelib: false\nTag: py3-none-a_x\nTag: py3-none-b_x" in str(
            file.read(f"{DIST}/WHEEL"), "ascii"
        )
        check_record(file)
        inside = [name for name in file.namelist() if name.startswith("tenonnx_cpu/")]
        assert inside == [f"tenonnx_cpu/kernels/{kind}.so"]
        content = file.read(inside[0])
    for name in (*KERNELS, library.IDENTITY, library.NDARRAY):
        assert name.encode() in content
    assert f"{library.binary_interface()}; 0.1.0".encode() in content


def check_record(file: zipfile.ZipFile) -> None:
    rows = file.read(f"{DIST}/RECORD").decode().splitlines()
    listed = dict(row.split(",", 1) for row in rows)
    assert sorted(listed) == sorted(file.namelist())
    assert listed.pop(f"{DIST}/RECORD") == ","
    for name, said in listed.items():
        content = file.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        assert said == f"sha256={digest},{len(content)}"


@pytest.mark.usefixtures("plain")
def test_an_install_has_the_kernels_of_this_processor(
    backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(kind: str, release: str, package: str) -> Path:
        library = tmp_path / "library"
        library.write_text(f"{kind} {release} {package}")
        return library

    monkeypatch.setattr(backend, "why_none", lambda: "")
    monkeypatch.setattr(backend, "wanted_kinds", lambda: ["x86-64-v3"])
    monkeypatch.setattr(backend, "build_library", built)
    monkeypatch.setattr(backend.sysconfig, "get_platform", lambda: "linux-x86_64")
    made = tmp_path / "made"
    made.mkdir()
    name = backend.build_wheel(str(made))
    assert name == "tenonnx-0.1.0-py3-none-linux_x86_64.whl"
    assert [path.name for path in made.iterdir()] == [name]
    with zipfile.ZipFile(made / name) as file:
        assert file.read("tenonnx_cpu/kernels/x86-64-v3.so") == b"x86-64-v3 0.1.0 tenonnx_cpu"
        check_record(file)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("failing", ["variable", "processor", "numba"])
def test_an_install_goes_on_without_kernels(
    failing: str,
    backend: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise LookupError("no reason")

    monkeypatch.setattr(backend, "why_none", lambda: "")
    if failing == "variable":
        monkeypatch.undo()
        monkeypatch.setenv(backend.BUILD_VARIABLE, "0")
        monkeypatch.setattr(
            backend.build_meta, "build_wheel", lambda folder, *_: write_plain(Path(folder)).name
        )
    elif failing == "processor":
        monkeypatch.setattr(backend, "wanted_kinds", fails)
    else:
        monkeypatch.setattr(backend, "wanted_kinds", lambda: ["x86-64-v3"])
        monkeypatch.setattr(backend, "build_library", fails)
    assert backend.build_wheel(str(tmp_path)) == "tenonnx-0.1.0-py3-none-any.whl"
    (said,) = capsys.readouterr().err.splitlines()
    assert "without compiled kernels: " in said
    assert ("TENONNX_BUILD_KERNELS is 0" if failing == "variable" else "no reason") in said
    assert "numpy computes instead" in said


@pytest.mark.parametrize(
    ("system", "libc", "expected"),
    [
        ("linux-x86_64", "glibc", ""),
        ("linux-aarch64", "glibc", ""),
        ("linux-x86_64", "", "glibc"),
        ("linux-i686", "glibc", "linux-x86_64 and"),
        ("macosx-14.0-arm64", "", "linux-x86_64 and"),
        ("win-amd64", "", "linux-x86_64 and"),
    ],
)
def test_numba_is_asked_for_where_kernels_are_compiled(
    system: str, libc: str, expected: str, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend.sysconfig, "get_platform", lambda: system)
    monkeypatch.setattr(backend.platform, "libc_ver", lambda: (libc, "2.36"))
    monkeypatch.setattr(backend, "NEWEST", sys.version_info[:2])
    needed = backend.get_requires_for_build_wheel()
    assert any(name.startswith("numba") for name in needed) is (expected == "")
    assert expected in backend.why_none()
    monkeypatch.setenv(backend.BUILD_VARIABLE, "0")
    assert not any("numba" in name for name in backend.get_requires_for_build_wheel())


def test_newer_versions_of_python_do_without_numba(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "NEWEST", (3, 10))
    assert backend.why_none()
    assert not any("numba" in name for name in backend.get_requires_for_build_wheel())


def test_a_linker_is_asked_for_where_no_c_compiler_is(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "why_none", lambda: "")
    for there in (True, False):
        monkeypatch.setattr(backend.shutil, "which", lambda _, is_there=there: is_there or None)
        for needed in (
            backend.get_requires_for_build_wheel(),
            backend.get_requires_for_build_editable(),
        ):
            assert any(name.startswith("numba") for name in needed)
            assert any(name.startswith("ziglang") for name in needed) is not there


def test_an_editable_install_has_kernels_in_the_users_cache(
    backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(backend, "why_none", lambda: "")
    monkeypatch.setattr(backend, "wanted_kinds", lambda: ["x86-64-v3"])
    monkeypatch.setattr(
        backend, "build_library", lambda *what, package: asked.append((*what, package)) or tmp_path
    )
    monkeypatch.setattr(backend.build_meta, "build_editable", lambda *_: "made.whl")
    assert backend.build_editable(str(tmp_path)) == "made.whl"
    assert asked == [("x86-64-v3", "", "tenonnx_cpu")]
