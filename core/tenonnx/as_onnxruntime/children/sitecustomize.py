"""Runs when Python starts in a child of a program that has tenonnx in onnxruntime's place.

It imports nothing but what Python has imported already, until the child imports onnxruntime.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

NAME = "onnxruntime"
HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes its time


class Finder:
    """Finds tenonnx's stand-in, and installs it, when onnxruntime is first looked for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns how to import onnxruntime; nothing of other modules."""
        del path, target
        if name != NAME or not _has_tenonnx():
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]  # a loader by what it has

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the stand-in."""
        from tenonnx.as_onnxruntime import install

        sys.meta_path.remove(self)
        module = install()
        spec.submodule_search_locations = list(module.__path__)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: the module is complete."""

    def find_distributions(self, context: Any = None) -> Iterable[Any]:
        """Returns onnxruntime's metadata if it is asked for."""
        if getattr(context, "name", None) != NAME or not _has_tenonnx():
            return []
        from tenonnx.as_onnxruntime.modules import MetadataFinder

        return MetadataFinder().find_distributions(context)


def _has_tenonnx() -> bool:
    """Says whether it is installed here: a child may be of another environment."""
    from importlib.util import find_spec

    return find_spec("tenonnx") is not None


def _run_the_next() -> None:
    """Runs the ``sitecustomize`` that this one hides."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != HERE]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("TENONNX_AS_ONNXRUNTIME") != "0":
    sys.meta_path.insert(0, Finder())
_run_the_next()
