"""The time of an installation as README describes it, and its size."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.machine import tell
from bench.measure import MIB
from bench.process import ROOT, Failed

CLONE = "tenonnx, `pip install .` in a clone"
WHEEL = "tenonnx, from a wheel"
PEER = "onnxruntime, from a wheel"


def has_kernels(python: str) -> bool:
    """Return whether the tenonnx of an interpreter has its kernels installed."""
    code = "from tenonnx_cpu.jit.code.cpu import installed_kinds; print(bool(installed_kinds()))"
    return said([python, "-c", code]).strip() == "True"


def measure_installs(folder: Path) -> tuple[str, dict[str, dict[str, float]]]:
    """Install each into an environment of its own, from nothing: no cache of pip's.

    Returns:
        The interpreter that has the clone's tenonnx, and onnxruntime as well; and seconds, those of
        processors, MiB on disk and of the wheel by what was installed.

    Raises:
        Failed: Something cannot be installed.
    """
    clone = folder / "clone"
    said(["git", "clone", "-q", str(ROOT), str(clone)])
    found = {}
    python, found[CLONE] = _install(folder / "from-clone", ".", clone)
    tell("building the wheel")
    wheels = folder / "wheels"
    said([python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), "."], clone)
    (wheel,) = wheels.glob("*.whl")
    _, found[WHEEL] = _install(folder / "from-wheel", str(wheel), folder)
    found[WHEEL]["wheel_mib"] = wheel.stat().st_size / MIB
    _, found[PEER] = _install(folder / "peer", "onnxruntime", folder)
    said([python, "-m", "pip", "install", "-q", "onnxruntime"], folder)
    return python, found


def _install(place: Path, what: str, where: Path) -> tuple[str, dict[str, float]]:
    """Install into a new environment; return its interpreter, and what that took."""
    tell(f"installing {what}")
    start = time.perf_counter()
    said([sys.executable, "-m", "venv", str(place)])
    python = str(place / "bin" / "python")
    before = _bytes(place)
    made, used = time.perf_counter(), _processor()
    said([python, "-m", "pip", "install", "-q", "--no-cache-dir", what], where)
    seconds = time.perf_counter() - made
    tell(f"  {seconds:.1f} s, after {made - start:.1f} s for the environment")
    told = {"seconds": seconds, "cpu_s": _processor() - used}
    return python, told | {"disk_mib": (_bytes(place) - before) / MIB}


def _processor() -> float:
    """Return the processor seconds of all processes that this one has waited for."""
    used = os.times()
    return used.children_user + used.children_system


def _bytes(place: Path) -> int:
    return sum(file.lstat().st_size for file in place.rglob("*") if not file.is_dir())


def said(command: list[str], where: Path | None = None) -> str:
    """Return what a command says.

    Raises:
        Failed: It fails.
    """
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout
