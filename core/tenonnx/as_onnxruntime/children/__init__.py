"""A folder for ``PYTHONPATH``: Python processes that find it have tenonnx for onnxruntime, too."""

from __future__ import annotations

import os
from pathlib import Path

SWITCH = "TENONNX_AS_ONNXRUNTIME"
"""The variable that, when it is 0, leaves child processes the onnxruntime that is installed."""


def announce() -> None:
    """Has Python processes that this one starts find ``sitecustomize`` here."""
    if os.environ.get(SWITCH) == "0":
        return
    here = str(Path(__file__).parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in paths if path and path != here]
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *others])
