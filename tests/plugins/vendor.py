"""The provider that ``tenonnx new compiler`` writes: a distribution, or a module."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sources import SOURCES
from tenonnx_scaffold.command import write

NAME = "vec"


def installed(folder: Path) -> Path:
    """Write a provider for a device, with the metadata of a distribution; return its place."""
    site = write("compiler", NAME, folder) / "src"
    info = site / "tenonnx_vec-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tenonnx-vec\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[tenonnx]\nvec = tenonnx_vec\n")
    return site


def child(site: Path, script: str, **variables: object) -> Any:
    """Run a script in a process with the distribution; return what it prints, as JSON."""
    given = {name: str(value) for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [site, *SOURCES])), **given},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
