"""Scripts that run in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sources import SOURCES


def child(script: str, *sites: Path, **variables: object) -> Any:
    """Run a script in a process with distributions of these sites; return its JSON."""
    given = {name: str(value) for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*sites, *SOURCES])), **given},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
