"""A plug-in with kernels: its library, as an install builds it and as ``tenonnx warmup`` does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

from sources import SOURCES
from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.aot import sources
from tenonnx_cpu.jit.packages import Package
from tenonnx_scaffold.command import write

pytestmark = pytest.mark.skipif(library.find() is None, reason="there are no kernels here")

KERNEL = "tenonnx_vec:squash.squash"
PRELUDE = """
import json, os, sys
import numpy as np
import tenonnx

def opened(threads=1):
    options = tenonnx.SessionOptions()
    options.intra_op_num_threads = threads
    return tenonnx.InferenceSession(sys.argv[1], options, providers=["cpu"])

def run(session, n=1000):
    x = np.random.default_rng(0).standard_normal(n, np.float32)
    for _ in range(3):
        (y,) = session.run(None, {"x": x})
    h = -x.astype(np.float64)
    np.testing.assert_allclose(y, np.exp(h / (1 + np.abs(h / 2.5))), rtol=1e-5)
    return [list(session.load_times), {name: each.state for name, each in session.kernels.items()}]
"""
MODEL = """
from tenonnx.testing import models
import onnx
body = "h = Neg(x) k = com.example.vec.Vec <cap: float = 2.5> (h) y = Exp(k)"
onnx.save(models.build(body, domains={"com.example.vec": 1}), sys.argv[1])
"""
ANSWER = "print(json.dumps(run(opened())))"


class Place:
    """A folder with the plug-in's sources, where it is installed, and a cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = write("kernels", "vec", folder)
        self.site = folder / "site"
        self.model = folder / "model.onnx"
        kernels = folder / "kernels"
        kernels.mkdir()
        if (own := library.find()) is not None and own.like is None:
            shutil.copy(own.path, kernels)
        self.variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
            "TENONNX_CACHE_DIR": str(folder / "cache"),
            library.KERNELS_VARIABLE: str(kernels),
            "TENONNX_JIT": "1",
        }

    def run(self, *command: object, **variables: str) -> tuple[str, str]:
        paths = os.pathsep.join(map(str, [self.site, *SOURCES]))
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            cwd=self.folder,
            env={**self.variables, "PYTHONPATH": paths, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr

    def install(self, *options: str, **variables: str) -> str:
        pip = ("-m", "pip", "install", "-v", "--no-deps", "--no-build-isolation", "--no-index")
        return self.run(*pip, "--target", self.site, *options, self.source, **variables)[0]

    def child(self, code: str = ANSWER, **variables: str) -> tuple[Any, str]:
        """Return what a program prints, as JSON, and what it logs."""
        whole = PRELUDE + textwrap.dedent(code)
        printed, logged = self.run("-c", whole, self.model, **variables)
        return json.loads(printed or "null"), logged


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The plug-in, installed with its library."""
    place = Place(tmp_path_factory.mktemp("installed"))
    place.install()
    place.child(MODEL)
    return place


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The plug-in with its sources on the path, as after an editable install."""
    place = Place(tmp_path_factory.mktemp("linked"))
    place.install(TENONNX_BUILD_KERNELS="0")
    package = place.site / "tenonnx_vec"
    assert not list(package.rglob("*.so"))
    place.child(MODEL)
    return place


def test_an_installed_library_is_used(installed: Place) -> None:
    (path,) = (installed.site / "tenonnx_vec" / "kernels").glob("*.so")
    (record,) = installed.site.glob("tenonnx_vec-*.dist-info/RECORD")
    assert f"tenonnx_vec/kernels/{path.name},sha256=" in record.read_text()
    (_, states), logged = installed.child()
    assert states[KERNEL] == "prebuilt"
    assert logged == ""
    (moments, _), _ = installed.child()
    assert moments == ["open"]
    said, _ = installed.run("-m", "tenonnx", "doctor")
    assert f"kernels of tenonnx_vec for {path.stem}, in {path}" in said


def test_its_launches_are_captured_with_those_of_others(installed: Place) -> None:
    calls, _ = installed.child(
        """
        session = opened()
        run(session)
        print(json.dumps(session.plan.source.count("= k")))
        """
    )
    assert calls == 1


def test_a_process_has_one_thread_pool(installed: Place) -> None:
    ended, _ = installed.child(
        """
        from tenonnx_cpu.jit import library
        from tenonnx_cpu.jit.packages import package_of
        from tenonnx_cpu.jit.threads import memory
        run(opened(4), 1 << 20)
        own, theirs = library.current(), library.current(package_of("tenonnx_vec"))
        assert theirs is not own
        assert theirs.pool is own.pool
        print(json.dumps([own.pool[memory.STARTED], len(os.listdir("/proc/self/task"))]))
        """
    )
    started, threads = ended
    assert threads <= 2 + started  # the main thread and numpy's, at most


@pytest.mark.parametrize("what", ["written", "cut", "release"])
def test_a_library_that_is_not_trusted_or_not_fit(what: str, installed: Place) -> None:
    folder = installed.site / "tenonnx_vec" / "kernels"
    (path,) = folder.glob("*.so")
    content, mode = path.read_bytes(), folder.stat().st_mode
    before = set((installed.folder / "kernels").glob("*.so"))
    if what == "written":
        folder.chmod(0o777)
    elif what == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.write_bytes(content.replace(b"; 0.", b"; 7."))
    try:
        (_, states), logged = installed.child()
        installed.run("-m", "tenonnx", "warmup")
        (_, then), _ = installed.child()
    finally:
        path.write_bytes(content)
        folder.chmod(mode)
    (cached,) = set((installed.folder / "kernels").glob("*.so")) - before
    cached.unlink()
    assert (states[KERNEL], then[KERNEL]) == ("numpy", "cached")
    expected = {"written": "by anybody", "cut": "not a whole library", "release": "for tenonnx 7."}
    assert expected[what] in logged
    assert logged.count("tenonnx_vec: kernels are not compiled") == 1


def test_warmup_builds_what_has_changed(linked: Place) -> None:
    (_, states), logged = linked.child()
    assert states[KERNEL] == "numpy"
    assert "tenonnx_vec: kernels are not compiled for this processor: numpy com" in logged
    assert logged.rstrip().endswith("tenonnx warmup")
    linked.run("-m", "tenonnx", "warmup")
    for moments in (["read", "transform", "place", "compile"], ["open"]):  # the plan was numpy's
        (found, states), logged = linked.child()
        assert (found, states[KERNEL], logged) == (moments, "cached", "")
    kernel = linked.site / "tenonnx_vec" / "kernels" / "squash.py"
    kernel.write_text(kernel.read_text().replace("Squashing numbers", "Numbers that are squashed"))
    (_, states), _ = linked.child()
    assert states[KERNEL] == "numpy"
    linked.run("-m", "tenonnx", "warmup")
    (_, states), _ = linked.child()
    assert states[KERNEL] == "cached"


def test_a_kernel_that_imports_what_its_library_does_not_know_of(tmp_path: Path) -> None:
    root = tmp_path / "tenonnx_vec"
    (root / "kernels").mkdir(parents=True)
    (root / "limits.py").write_text("LIMIT = 1\n")
    (root / "kernels" / "parts.py").write_text("PART = 1\n")
    kernel, package = root / "kernels" / "a.py", Package("tenonnx_vec", str(root))
    seen = set()
    for line in (
        "from tenonnx_vec.kernels.parts import PART",
        "from tenonnx_vec.kernels import parts",
        "from .parts import PART",
        "from . import parts",
        "import tenonnx_vec.kernels.parts as parts",
        "from tenonnx_vec.kernels.parts import (\n    PART,\n)",
    ):
        kernel.write_text(f"{line}\n")
        for known in (sources._content, sources._imports, sources._file_of):
            known.cache_clear()
        sources.require_founded(str(kernel), package)
        assert str(root / "kernels" / "parts.py") in sources._imports(str(kernel), package)[0][1]
        seen.add(sources.digest_of(str(kernel), package))
    assert len(seen) == 6
    for line in ("from tenonnx_vec.limits import LIMIT", "from ..limits import LIMIT"):
        kernel.write_text(f"{line}\n")
        sources._imports.cache_clear()
        with pytest.raises(sources.Unfounded, match=r"a imports tenonnx_vec\.limits, which"):
            sources.require_founded(str(kernel), package)


def test_the_plug_in_passes_its_own_tests(linked: Place) -> None:
    """That compiles its kernels; and its guards end a kernel that leaves its arrays."""
    kit = ("-p", "tenonnx.testing.plugin", "-p", "no:cacheprovider", "-W", "error")
    pytest_of = ("-m", "pytest", "-q", "--rootdir", linked.source, *kit, linked.source / "tests")
    kernel = linked.site / "tenonnx_vec" / "kernels" / "squash.py"
    content = kernel.read_text()
    kernel.write_text(f"{content}\nCHANGED = 1\n")
    assert "9 passed" in linked.run(*pytest_of)[0]
    loop = "    for i in range(out.size):"
    kernel.write_text(content.replace(loop, f"    y[y.size + 0] = 0\n{loop}"))
    try:
        with pytest.raises(AssertionError, match=r"test_kernels_stay_in_their_arrays\[1-behind\]"):
            linked.run(*pytest_of)
    finally:
        kernel.write_text(content)


def test_a_module_that_calls_kernels_and_cannot_be_imported(linked: Place) -> None:
    module = linked.site / "tenonnx_vec" / "calls.py"
    content = module.read_text()
    module.write_text(f"{content}\nimport nothing_here\n")
    said = "tenonnx_vec.calls of tenonnx-vec 0.1.0, which calls the kernels of com.example.vec"
    try:
        printed, _ = linked.run("-m", "tenonnx", "doctor")
        assert f"{said}, cannot be imported: ModuleNotFoundError" in printed
        for command in (("warmup",), ("run", linked.model, "--input", "random")):
            with pytest.raises(AssertionError, match=said):
                linked.run("-m", "tenonnx", *command)
        linked.run("-m", "tenonnx", "run", linked.model, "--input", "random", TENONNX_JIT="0")
    finally:
        module.write_text(content)
