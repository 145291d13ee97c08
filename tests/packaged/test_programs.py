"""Programs that PyInstaller, shiv and zipapp make run as the environment that they are made from.

Run by ``tox -e packaged``, which installs tenonnx with its kernels; skipped without the packers.
PyInstaller alone takes minutes.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from tenonnx.testing import models
from tenonnx_scaffold.command import write

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
DIGITS = EXAMPLES / "digits"

NOBODY = 65534
"""The number of the user ``nobody``, to whom no file belongs."""

Report = dict[str, Any]


def run(*command: str, cache: Path | None, user: int | None = None) -> Report:
    """Run a program as a user would, and return its report.

    Args:
        command: The program and its arguments.
        cache: The folder of its cache; a user without a home has none.
        user: The number of the user whom it belongs to.
    """
    names = ("HOME", "LANG", "PATH") if cache else ("LANG", "PATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    if cache:
        kept |= {"TENONNX_CACHE_DIR": str(cache), "SHIV_ROOT": str(cache / "shiv")}
    done = subprocess.run(
        command, env=kept, cwd=cache and cache.parent, user=user,
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: Report = json.loads(done.stdout.splitlines()[-1])
    return report


def make(packer: str, *arguments: str, folder: Path, **variables: str) -> None:
    """Run a packer."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", packer, *arguments], env={**os.environ, **variables},
        cwd=folder, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of the program that nobody packed."""
    for packer in ("PyInstaller", "shiv"):
        pytest.importorskip(packer)
    cache = tmp_path_factory.mktemp("unpacked") / "cache"
    report = run(sys.executable, "-P", str(HERE / "program.py"), str(EXAMPLES), cache=cache)
    assert report["right"] > 0.95
    assert not report["frozen"]
    assert report["kernels"] == ["prebuilt"], "install tenonnx with its kernels"
    return report


def check(packed: Report, unpacked: Report, folder: Path, cache: Path) -> None:
    """Compare a packed program's report with that of one that is not packed."""
    assert Path(packed["file"]).is_relative_to(folder)
    alike = ("right", "same", "kernels", "plugins", "providers")
    assert {key: packed[key] for key in alike} == {key: unpacked[key] for key in alike}
    assert not packed["numba"]
    assert packed["onnxruntime"] == "tenonnx.session"
    assert any((cache / "plans").iterdir())


def test_pyinstaller(unpacked: Report, tmp_path: Path) -> None:
    data = [f"--add-data={DIGITS / name}:digits" for name in ("digits.onnx", "heldout.npz")]
    make("PyInstaller", "--noconfirm", *data, str(HERE / "program.py"), folder=tmp_path)
    built, cache = tmp_path / "dist" / "program", tmp_path / "cache"
    packed = run(str(built / "program"), cache=cache)
    assert packed["frozen"]
    check(packed, unpacked, built, cache)
    again = run(str(built / "program"), cache=cache)
    assert again == packed


PLUGIN_PROGRAM = """
import json, sys
import numpy as np
import tenonnx
session = tenonnx.InferenceSession(sys.argv[1], providers=["cpu"])
x = np.linspace(-3, 3, 1000, dtype=np.float32)
(y,) = session.run(None, {"x": x})
near = np.allclose(y, x / (1 + np.abs(x / 2.5)))
print(json.dumps({"near": near, "kernels": {n: k.state for n, k in session.kernels.items()}}))
"""


@pytest.mark.usefixtures("unpacked")
def test_pyinstaller_collects_kernels_of_plugins(tmp_path: Path) -> None:
    site = tmp_path / "site"
    offline = ("--no-deps", "--no-build-isolation", "--no-index", f"--target={site}")
    make("pip", "install", *offline, str(write("kernels", "vec", tmp_path)), folder=tmp_path)
    body = "y = com.example.vec.Vec <cap: float = 2.5> (x)"
    onnx.save(models.build(body, domains={"com.example.vec": 1}), tmp_path / "model.onnx")
    (tmp_path / "squash.py").write_text(PLUGIN_PROGRAM)
    make("PyInstaller", "--noconfirm", "squash.py", folder=tmp_path, PYTHONPATH=str(site))
    program = tmp_path / "dist" / "squash" / "squash"
    report = run(str(program), str(tmp_path / "model.onnx"), cache=tmp_path / "cache")
    assert report["near"]
    assert report["kernels"]["tenonnx_vec:squash.squash"] == "prebuilt"


def test_shiv(unpacked: Report, tmp_path: Path) -> None:
    site = tmp_path / "site"
    for distribution in closure("tenonnx"):
        copy(distribution, site)
    shutil.copy(HERE / "program.py", site)
    made, cache = tmp_path / "program.pyz", tmp_path / "cache"
    make(
        "shiv", f"--site-packages={site}", f"--output-file={made}", "--entry-point=program:main",
        "--uncompressed", folder=tmp_path,
    )  # fmt: skip
    packed = run(sys.executable, str(made), str(EXAMPLES), cache=cache)
    check(packed, unpacked, cache / "shiv", cache)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root")
def test_a_user_without_a_home_who_may_write_nothing(unpacked: Report) -> None:
    command = (sys.executable, "-P", str(HERE / "program.py"), str(EXAMPLES))
    try:
        found = run(*command, cache=None, user=NOBODY)
    except PermissionError:
        pytest.skip(f"others may not execute {sys.executable}")
    assert found == unpacked


def closure(name: str) -> Iterator[str]:
    """Yield a distribution and all that it needs without its extras."""
    seen, left = set(), [name]
    while left:
        if (name := left.pop().lower().replace("_", "-")) in seen:
            continue
        seen.add(name)
        yield name
        needed = [r for r in importlib.metadata.requires(name) or () if "extra ==" not in r]
        left += filter(_is_installed, (re.split(r"[^\w.-]", each)[0] for each in needed))


def _is_installed(name: str) -> bool:
    return any(True for _ in importlib.metadata.distributions(name=name))


def copy(distribution: str, site: Path) -> None:
    """Copy the files of a distribution that are in site-packages."""
    for file in importlib.metadata.files(distribution) or ():
        source = Path(str(file.locate()))
        if ".." not in file.parts and source.is_file():
            target = site.joinpath(*file.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
