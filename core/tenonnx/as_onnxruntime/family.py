"""Modules of onnxruntime's family, such as ``onnxruntime_genai``, that plug-ins stand for."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

GROUP: Final = "tenonnx.as_onnxruntime"
"""Entry points: a module's name, and the module that stands for it."""

PREFIX: Final = "onnxruntime_"


class Member(ModuleType):
    """A module whose attributes are those of the one that stands for it.

    Args:
        name: The module's.
        place: What stands for it.
        path: Where submodules are looked for: those of the real one that are Python alone.
    """

    def __init__(self, name: str, place: Any, path: Sequence[str]) -> None:
        super().__init__(name, f"{place.__name__} in the place of {name}.")
        self._place = place
        self.__path__ = list(path)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._place, name)
        except AttributeError:
            raise AttributeError(
                f"{self.__name__} is {self._place.__name__} here, which has no {name!r}"
            ) from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._place.__all__})


class FamilyLoader(Loader):
    """Makes such a module.

    Args:
        point: The plug-in's entry point.
    """

    def __init__(self, point: importlib.metadata.EntryPoint) -> None:
        self._point = point

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns a module that has the attributes of the one that stands for it."""
        real = PathFinder.find_spec(spec.name)
        folders = (real.submodule_search_locations if real is not None else None) or ()
        return Member(spec.name, self._point.load(), list(folders))

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: there is no code."""


class FamilyFinder(MetaPathFinder):
    """Finds modules that a plug-in stands for, before those that are installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns the spec of such a module."""
        del path, target
        if not fullname.startswith(PREFIX) or "." in fullname:
            return None
        points = importlib.metadata.entry_points(group=GROUP, name=fullname)
        loaders = [FamilyLoader(point) for point in points]
        return ModuleSpec(fullname, loaders[0], is_package=True) if loaders else None
