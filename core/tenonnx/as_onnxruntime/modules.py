"""The modules that stand for onnxruntime's."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from email.message import Message
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import tenonnx
from tenonnx.as_onnxruntime.family import FamilyFinder
from tenonnx.errors import Fail, page

NAME: Final = "onnxruntime"
VERSION: Final = "1.32.0"
"""onnxruntime's version whose API this is; programs choose what they do by it."""

INNER: Final = (
    "_ld_preload",
    "_pybind_state",
    "onnxruntime_inference_collection",
    "onnxruntime_pybind11_state",
    "onnxruntime_validation",
)
"""Modules of ``onnxruntime.capi`` that programs import."""


class Stand(ModuleType):
    """A module whose attributes are tenonnx's, beside a few of its own.

    Args:
        name: The module's.
        own: Attributes that tenonnx has not, or has otherwise.
        path: Where submodules are looked for.
    """

    def __init__(
        self, name: str, own: Mapping[str, Any], path: Iterable[str] | None = None
    ) -> None:
        super().__init__(name, f"tenonnx in the place of {name}.")
        self.__spec__ = ModuleSpec(name, None, is_package=path is not None)
        if path is not None:
            self.__path__ = list(path)
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(tenonnx, name)
        except AttributeError:
            raise AttributeError(
                f"{self.__name__} is tenonnx here, which has no {name!r}: see {page('onnxruntime')}"
            ) from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(tenonnx)})


def install() -> ModuleType:
    """Makes ``import onnxruntime`` give tenonnx from now on; returns the module.

    Raises:
        Fail: The real onnxruntime is imported already.
    """
    present = sys.modules.get(NAME)
    if isinstance(present, Stand):
        return present
    if present is not None:
        raise Fail(
            "onnxruntime is imported already",
            hint="install first, or run the program with python -m tenonnx.as_onnxruntime",
        )
    folder = _installed()
    inner = {name: Stand(f"{NAME}.capi.{name}", _own(name)) for name in INNER}
    capi = Stand(f"{NAME}.capi", inner, [])
    own = {
        "__version__": VERSION,
        "capi": capi,
        "cuda_version": "",
        "get_version_string": lambda: VERSION,
        "import_capi_exception": None,
        "onnxruntime_validation": inner["onnxruntime_validation"],
        "package_name": NAME,
        "version": VERSION,
    }
    top = Stand(NAME, own, [folder] if folder else [])
    sys.modules.update({NAME: top, capi.__name__: capi})
    sys.modules.update({module.__name__: module for module in inner.values()})
    sys.meta_path.insert(0, FamilyFinder())
    sys.meta_path.append(MetadataFinder())
    return top


def _own(name: str) -> dict[str, Any]:
    """Returns what an inner module has that tenonnx has not."""
    match name:
        case "_pybind_state" | "onnxruntime_pybind11_state":
            from tenonnx.as_onnxruntime import blockwise, state

            return {n: getattr(module, n) for module in (blockwise, state) for n in module.__all__}
        case "onnxruntime_inference_collection":
            from tenonnx.interface.named_devices import DEVICE_TYPES
            from tenonnx.interface.session_facts import Session

            return {"Session": Session, "get_ort_device_type": DEVICE_TYPES.__getitem__}
        case "onnxruntime_validation":
            return {
                "check_distro_info": lambda: None,
                "get_package_name_and_version_info": lambda: (NAME, VERSION, ""),
            }
    return {}


def _installed() -> str | None:
    """Returns the folder of an installed onnxruntime, without importing it."""
    spec = importlib.util.find_spec(NAME)
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)


class Distribution(importlib.metadata.Distribution):
    """The metadata of onnxruntime, for programs that ask which version is installed."""

    @property
    def metadata(self) -> Any:
        """Name and version."""
        message = Message()
        message["Name"], message["Version"] = NAME, VERSION
        return message

    def read_text(self, filename: str) -> str | None:
        """Returns no file."""
        del filename
        return None

    def locate_file(self, path: Any) -> Any:
        """Returns where a file would be."""
        return Path(path)


class MetadataFinder(MetaPathFinder):
    """Finds onnxruntime's metadata where it is not installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Finds no module."""

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        """Returns the distribution if it is the one asked for."""
        name = getattr(context, "name", None)
        return [Distribution()] if name == NAME else []
