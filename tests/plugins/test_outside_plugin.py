"""A plug-in from a distribution of its own, installed by pip beside an installed tenonnx."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples/plugins/tenonnx-counting"
SOURCES = (
    "core",
    "providers",
    "plugins",
    "tools",
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)

SCRIPT = """
import json
from collections import Counter
from dataclasses import asdict
import numpy as np, onnx.parser
import tenonnx

model = onnx.parser.parse_model('''
    <ir_version: 10, opset_import: ["": 21, "com.example": 1]>
    test (float[n, 3] x) => (float[n, 3] y) {
        h = Transpose(x)
        k = Transpose(h)
        y = com.example.SoftCap <cap: float = 2.0> (k)
    }
''')
calls = Counter()
session = tenonnx.InferenceSession(model, providers=[("counting", {"calls": calls})])
x = np.array([[-100, 0.5, 100]], np.float32)
(y,) = session.run(None, {"x": x})
print(json.dumps({
    "tenonnx": tenonnx.__file__,
    "plugins": [asdict(record) for record in tenonnx.PluginSet().records],
    "placement": session.placement.counts(),
    "modified": [report.name for report in session.transforms if report.modified],
    "calls": calls,
    "y": y.tolist(),
    "expected": (2 * np.tanh(x / 2)).tolist(),
}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with tenonnx and the plug-in installed; the rest it borrows from ours."""
    folder = tmp_path_factory.mktemp("outside")
    venv.create(folder / "env", with_pip=False)
    scheme = {"base": str(folder / "env"), "platbase": str(folder / "env")}
    own = Path(sysconfig.get_path("purelib", "venv", scheme))
    borrowed = [sysconfig.get_path("purelib"), *site.getsitepackages()]
    lines = [f"import site; site.addsitedir({path!r})" for path in dict.fromkeys(borrowed)]
    (own / "borrowed.pth").write_text("\n".join(lines) + "\n")

    # Building in the checkout would leave things there.
    (folder / "tenonnx").mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / "tenonnx" / name)
    shutil.copytree(PLUGIN, folder / "plugin")
    interpreter = Path(sysconfig.get_path("scripts", "venv", scheme)) / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--quiet"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed"]
    run([*pip, *offline, str(folder / "tenonnx"), str(folder / "plugin")], folder)
    return interpreter


def run(command: list[str], folder: Path) -> str:
    """Return what a command prints, run where no source is in the way."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TENONNX", "PIP_"))}
    kept["TENONNX_BUILD_KERNELS"] = "0"  # they are no part of what a plug-in is tested with
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def report(python: Path) -> Any:
    return json.loads(run([str(python), "-W", "error", "-c", SCRIPT], python.parent))


def test_the_installed_packages_are_the_ones_that_run(python: Path, report: Any) -> None:
    environment = python.parents[2]
    assert Path(report["tenonnx"]).is_relative_to(environment)


def test_the_plugin_is_listed_with_what_it_brought(report: Any) -> None:
    assert [record for record in report["plugins"] if record["error"]] == []
    assert report["plugins"][0]["distribution"].startswith("tenonnx ")
    (record,) = (r for r in report["plugins"] if r["name"] == "counting")
    assert record["distribution"] == "tenonnx-counting 1.0.0"
    assert record["hooks"] == ["register_operators", "register_providers", "register_transforms"]
    assert set(record["registered"]) == {
        "provider CountingExecutionProvider",
        "provider counting",
        "operators of com.example",
        "transform merge-transposes",
    }


def test_its_provider_transform_and_operator_run(report: Any) -> None:
    assert report["placement"] == {"CountingExecutionProvider": 1}
    assert "merge-transposes" in report["modified"]
    assert report["calls"] == {"com.example::SoftCap": 1}
    assert report["y"][0] == pytest.approx(report["expected"][0])


def test_its_own_tests_pass(python: Path) -> None:
    tests = python.parents[2] / "plugin"
    assert " passed" in run([str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"], tests)
