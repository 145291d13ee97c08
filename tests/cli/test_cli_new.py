"""A plug-in from ``tenonnx new`` passes its own tests, ruff and mypy unchanged."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import onnx.defs
import pytest
from small import Cli

from sources import ROOT, SOURCES
from tenonnx_scaffold.command import Kind, checking

LONG = "as-long-as-names-may-be"


def run(command: Sequence[object], folder: Path, *path: Path) -> str:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("PIP_")},
        "PYTHONPATH": os.pathsep.join([*map(str, [*path, *SOURCES])]),
        "MYPYPATH": checking().removeprefix("MYPYPATH=").removesuffix(" mypy"),
    }
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(cli: Cli, folder: Path, names: Sequence[tuple[str, str]]) -> list[Path]:
    for kind, name in names:
        result = cli("new", kind, name, "--directory", folder)
        assert result.exit_code == 0, result.output
        assert f"wrote {folder / f'tenonnx-{name}'}" in result.stdout
    return [folder / f"tenonnx-{name}" for _, name in names]


@pytest.mark.skipif(
    onnx.defs.onnx_opset_version() < 28,
    reason="the installed onnx is older than the cases that the template names",
)
def test_what_is_written_installs_and_passes_its_tests(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = written(cli, tmp_path, [(kind, f"new-{kind}") for kind in Kind])
    monkeypatch.setenv("TENONNX_BUILD_KERNELS", "0")  # they are, in tests/cpu
    offline = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", "site"]
    run(["pip", "install", *offline, *made], tmp_path)
    site = tmp_path / "site"
    options = ["-q", "--rootdir", tmp_path, "-p", "no:cacheprovider", "-W", "error"]
    # An environment in which the distribution was not installed anew has no entry point yet.
    kit = ["-p", "tenonnx.testing.plugin"]
    tests = [folder / "tests" for folder in made]
    assert " passed" in run(["pytest", *options, *kit, *tests], tmp_path, site)
    lister = ["tenonnx", "plugins"]
    listed = run(lister, tmp_path, site)
    assert all(f"tenonnx-new-{kind} 0.1.0" in listed for kind in Kind)
    assert "not in use" not in listed


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("ruff", "mypy"))), reason="ruff or mypy is missing"
)
def test_what_is_written_passes_ruff_and_mypy(cli: Cli, tmp_path: Path) -> None:
    made = written(cli, tmp_path, [(kind, f"{LONG[:15]}{kind}") for kind in Kind])
    run(["ruff", "check", "--no-cache", *made], tmp_path)
    run(["ruff", "format", "--check", "--no-cache", *made], tmp_path)
    sources = [source for folder in made for source in (folder / "src").iterdir()]
    run(["mypy", "--strict", "--cache-dir", ROOT / ".mypy_cache", *sources], tmp_path)


def test_the_metadata_is_complete(cli: Cli, tmp_path: Path) -> None:
    (folder,) = written(cli, tmp_path, [("operator", "soft-cap")])
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "tenonnx-soft-cap"
    assert project["entry-points"]["tenonnx"] == {"soft_cap": "tenonnx_soft_cap"}
    for name in ("README.md", "LICENSE", ".gitignore", ".github/workflows/test.yml"):
        assert (folder / name).read_text().strip()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Soft Cap", "no name for a plug-in: .*\nhint: for example soft-cap"),
        ("1st", "no name for a plug-in: .*\nhint: for example st"),
        ("class", "no name for a plug-in: .*\nhint: for example class-plugin"),
        ("x" * 25, "no name for a plug-in: expected up to 24 small letters"),
        ("cpu", r"'cpu' is taken by the plug-in 'cpu' of tenonnx \d"),
        ("ort-format", r"'ort-format' is taken by the plug-in 'ort_format' of tenonnx \d"),
        ("array", "'array' is taken by the module tenonnx_array"),
    ],
)
def test_names_that_cannot_be(cli: Cli, tmp_path: Path, name: str, message: str) -> None:
    result = cli("new", "provider", name, "--directory", tmp_path)
    assert result.exit_code == 2
    assert re.search(message, result.stderr), result.stderr
    assert not list(tmp_path.glob("tenonnx-*"))


def test_a_folder_that_is_there_stays(cli: Cli, tmp_path: Path) -> None:
    written(cli, tmp_path, [("format", "zipped")])
    again = cli("new", "format", "zipped", "--directory", tmp_path)
    assert again.exit_code == 2
    assert "is there already" in again.stderr
