"""The folders of stand-ins on the paths of this process and of those that it starts."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from tenonnx.errors import Fail

# Entry points: a package that stands for one of another library, and the package it lies in.
STAND_IN_GROUP: Final = "tenonnx.as_onnxruntime"

# The variable that, when it is 0, leaves child processes the onnxruntime that is installed.
SWITCH: Final = "TENONNX_AS_ONNXRUNTIME"

OURS: Final = Path(__file__).parent / "stand_ins"


def install() -> ModuleType:
    """Make ``import onnxruntime`` give tenonnx from now on; return the module.

    Raises:
        Fail: The real onnxruntime is imported already.
    """
    present = sys.modules.get("onnxruntime")
    if present is not None and Path(getattr(present, "__file__", None) or "").parents[1:2] != [
        OURS
    ]:
        raise Fail(
            "onnxruntime is imported already",
            hint="install first, or run the program with python -m tenonnx.as_onnxruntime",
        )
    folders = _folders()
    sys.path[:] = [*folders, *(path for path in sys.path if path not in folders)]
    importlib.invalidate_caches()
    return importlib.import_module("onnxruntime")


def announce() -> None:
    """Put the folders in front of ``PYTHONPATH``, for Python processes that this one starts."""
    if os.environ.get(SWITCH) == "0":
        return
    folders = _folders()
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in paths if path and path not in folders]
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *others])


def _folders() -> list[str]:
    """Return the folder of tenonnx and those of plug-ins."""
    packages = {point.value for point in importlib.metadata.entry_points(group=STAND_IN_GROUP)}
    specs = map(importlib.util.find_spec, sorted(packages))
    places = [place for spec in specs if spec for place in spec.submodule_search_locations or ()]
    return [str(OURS), *places]
