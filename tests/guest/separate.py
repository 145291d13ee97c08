"""Python programs in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODEL = str(ROOT / "examples" / "digits" / "digits.onnx")
SOURCES = [str(ROOT / folder) for folder in ("core", "providers", "plugins")]

Program = Callable[..., str]
"""Runs Python with arguments, and with variables of the environment by name; returns its output."""


def run(environment: Mapping[str, str], *arguments: str, **variables: str) -> str:
    """Run Python with arguments; fail with its errors if it fails."""
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env={**environment, **variables}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
