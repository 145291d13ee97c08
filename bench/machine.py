"""The machine of measurements, and messages about their progress."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.process import ROOT

PACKAGES = (
    *("tenonnx", "onnxruntime", "onnx", "onnx-ir", "numpy", "numba", "threadpoolctl"),
    *("openvino", "torch"),
)


def tell(text: str) -> None:
    """Write a line of progress."""
    print(text, file=sys.stderr, flush=True)


BUSY = "cores busy with other work"
SAMPLE_SECONDS = 0.5


def machine() -> dict[str, Any]:
    """Describe where measurements are about to be taken, and of which commit."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := _version(name))},
        **({"commit": found} if (found := _commit()) else {}),
        **({BUSY: busy} if (busy := _busy()) is not None else {}),
    }


def joined(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Describe a table some rows of which are of before: both commits, and the busier time."""
    commits = [each["commit"] for each in (before, now) if "commit" in each]
    busy = [each[BUSY] for each in (before, now) if BUSY in each]
    told = {"commit": " and ".join(dict.fromkeys(commits))} if commits else {}
    return now | told | ({BUSY: max(busy)} if busy else {})


def _busy() -> float | None:
    """Return how many cores work, as this process waits; ``None`` if the system does not tell."""
    try:
        before = _idle_seconds()
        time.sleep(SAMPLE_SECONDS)
        idle = _idle_seconds() - before
    except (OSError, ValueError, AttributeError):
        return None
    return round(max(0.0, (os.cpu_count() or 1) - idle / SAMPLE_SECONDS), 1)


def _idle_seconds() -> float:
    """Return the seconds that all cores together have been idle."""
    fields = Path("/proc/stat").read_text().split(maxsplit=6)
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def _commit() -> str:
    """Return the commit; ``-dirty`` says that more than results differs from it."""
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
