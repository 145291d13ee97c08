"""The recipe for a fusion, followed in a copy of the sources: one file more, and it is taken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

ROOT = Path(__file__).parents[2]
COPIED = ("providers/tenonnx_array", "providers/tenonnx_cpu", "plugins/tenonnx_contrib", "tools")
BLOCK = re.compile(r"^```python no-run (?P<what>\S+)\n(?P<code>.*?)^```$", re.M | re.S)


def test_a_fusion_is_added_by_one_file(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "recipes" / "add-a-fusion.md").read_text()
    blocks = {found["what"]: found["code"] for found in BLOCK.finditer(text)}
    (path,) = (what for what in blocks if what.startswith("path="))
    for folder in COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    (tmp_path / path.removeprefix("path=")).write_text(blocks[path])
    places = (tmp_path / "providers", tmp_path / "plugins", ROOT / "core")
    environment = {**os.environ, "TENONNX_JIT": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, places))
    for command in (["tools/kernel_listing.py"], ["-c", blocks["try"]]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
