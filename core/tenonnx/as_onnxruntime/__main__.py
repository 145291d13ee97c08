"""``python -m tenonnx.as_onnxruntime script.py`` or ``-m module``, with their arguments."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tenonnx.as_onnxruntime import install
from tenonnx.as_onnxruntime.folders import SWITCH, announce

USAGE = f"""usage: python -m tenonnx.as_onnxruntime [-m MODULE | SCRIPT] [ARGUMENT ...]

Runs a Python program with tenonnx wherever it imports onnxruntime. So do the Python processes that
it starts, unless they ignore the environment (python -E, -I, -S) or {SWITCH} is 0."""


def main(arguments: list[str]) -> None:
    """Run a script or module as ``python`` would, with tenonnx in onnxruntime's place."""
    if not arguments or arguments == ["-m"] or arguments[0] in ("-h", "--help"):
        sys.exit(USAGE)
    is_module = arguments[0] == "-m"
    sys.argv = arguments[1:] if is_module else arguments
    if not is_module:
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
    install()
    announce()
    if is_module:
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
