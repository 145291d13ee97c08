"""What measurements were taken on; and telling how they go on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.process import ROOT

PACKAGES = (
    *("tenonnx", "onnxruntime", "onnx", "onnx-ir", "numpy", "numba", "threadpoolctl"),
    *("openvino", "torch"),
)


def tell(text: str) -> None:
    """Writes a line of progress."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """Describes where the measurements were taken, and of which commit."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := _version(name))},
        **({"commit": found} if (found := _commit()) else {}),
    }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def _commit() -> str:
    """Returns the commit; ``-dirty`` says that more than results differs from it."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "-uno", "--", ".", ":!bench/results")
    return f"{commit}-dirty" if commit and changed else commit


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
