"""The build backend of this project: the one that it has for plug-ins, as it is in these sources.

It is loaded by its file's name: its package imports what may not be installed yet.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def _loaded() -> Any:
    file = ROOT / "providers" / "tenonnx_cpu" / "build_backend.py"
    spec = importlib.util.spec_from_file_location("build_backend", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


backend = _loaded()
build_editable = backend.build_editable
build_sdist = backend.build_sdist
build_wheel = backend.build_wheel
get_requires_for_build_editable = backend.get_requires_for_build_editable
get_requires_for_build_sdist = backend.get_requires_for_build_sdist
get_requires_for_build_wheel = backend.get_requires_for_build_wheel
prepare_metadata_for_build_editable = backend.prepare_metadata_for_build_editable
prepare_metadata_for_build_wheel = backend.prepare_metadata_for_build_wheel
