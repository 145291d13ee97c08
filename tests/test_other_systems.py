"""Optional parts of the system: the package works without POSIX's modules, as on Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

WITHOUT_POSIX = """
import ctypes, mmap, os, pathlib, shutil, sys, types
import numpy as np, onnx_ir, platformdirs, rich.console, typer

for name in ("fcntl", "pwd", "grp", "resource"):
    sys.modules[name] = None
shared = {"O_RDONLY", "O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_EXCL", "O_APPEND"}
gone = {"fork", "register_at_fork", "posix_fallocate", "pread", "pwrite", "sysconf", "getuid",
        "sched_getaffinity", "statvfs", "mkfifo", "killpg"}
for name in list(vars(os)):
    if name in gone or name.startswith("O_") and name not in shared:
        delattr(os, name)
# Another system's shutil does not call statvfs.
shutil.disk_usage = lambda path: types.SimpleNamespace(free=2**40)
for name in list(vars(mmap)):
    if name.startswith(("MAP_", "PROT_", "MADV_")):
        delattr(mmap, name)

class Library(ctypes.CDLL):
    def __init__(self, name, *arguments, **options):
        if name is None:
            raise TypeError("a library has a name")
        super().__init__(name, *arguments, **options)

ctypes.CDLL = Library
import tenonnx as ort
from tenonnx.cli import main

digits = pathlib.Path("examples/digits")
held_out = np.load(digits / "heldout.npz")
images = held_out["images"].astype(np.float32)[:, None] / 16
for model in (digits / "digits.onnx", (digits / "digits.onnx").read_bytes()):
    (logits,) = ort.InferenceSession(model).run(None, {"image": images})
    print((logits.argmax(axis=1) == held_out["labels"]).sum())
main(["run", str(digits / "digits.onnx"), "--input", "random", "--dim", "batch=2"])
"""


def test_models_run_where_nothing_of_posix_is() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX],
        cwd=ROOT,
        env=os.environ | {"TENONNX_JIT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split()[:2] == ["449", "449"], done.stderr
    assert "ran on CPUExecutionProvider" in done.stdout
