"""Imports of tenonnx and its packages: they are cheap, and no heavy module comes with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from sources import PACKAGES, SOURCES


def modules_after(code: str) -> set[str]:
    """Return the top-level modules that a fresh process has after some code."""
    code += "\nimport json, sys; print(json.dumps([m.split('.')[0] for m in sys.modules]))"
    # An editable install misses a package that was added after it.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCES))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr.decode()
    return set(json.loads(done.stdout.splitlines()[-1]))


HEAVY = {"cupy", "jax", "numba", "openvino", "llvmlite", "torch", "onnxruntime", "ray", "sklearn"}


def test_importing_tenonnx_imports_next_to_nothing() -> None:
    found = modules_after("import tenonnx")
    assert "tenonnx" in found
    assert not found & (HEAVY | {"numpy", "onnx", "onnx_ir", "typer", "rich", "pluggy"})


def test_the_plugin_of_pytest_leaves_numpy_to_whoever_wants_it_first() -> None:
    assert not modules_after("import tenonnx.testing.plugin") & (HEAVY | {"numpy", "onnx"})


@pytest.mark.parametrize(
    "code",
    [
        "import tenonnx; tenonnx.get_all_providers()",
        "import tenonnx; tenonnx.default_plugins()",
        *(f"import {package}" for package in sorted(PACKAGES)),
    ],
)
def test_discovery_imports_no_heavy_module(code: str) -> None:
    assert not modules_after(code) & (HEAVY | {"typer", "rich"})
