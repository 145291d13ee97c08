"""The contracts of plug-ins as tests: subclass one, name your plug-in in it, and run pytest.

``ProviderTests``, ``TransformTests`` and ``FormatTests`` are the ones that the built-in plug-ins
pass. They need the extra ``testing``, which brings pytest and hypothesis.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx.testing import models
    from tenonnx.testing.compare import assert_similar
    from tenonnx.testing.formats import FormatTests
    from tenonnx.testing.providers import ProviderTests
    from tenonnx.testing.transforms import TransformTests

__all__ = ["FormatTests", "ProviderTests", "TransformTests", "assert_similar", "models"]

# Loaded when first asked for: pytest imports this package in every project that it is installed
# beside, and who imports numpy first decides how many threads its BLAS has.
_HOMES = {
    "FormatTests": "formats",
    "ProviderTests": "providers",
    "TransformTests": "transforms",
    "assert_similar": "compare",
}


def __getattr__(name: str) -> Any:
    if name == "models":
        return importlib.import_module("tenonnx.testing.models")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if error.name not in ("hypothesis", "pytest"):
            raise
        raise ModuleNotFoundError(
            f"tenonnx.testing.{name} needs {error.name}, which is not installed: "
            "pip install 'tenonnx[testing]', or pip install -e . --group test in the folder of a "
            "plug-in that `tenonnx new` wrote",
            name=error.name,
        ) from error
    return getattr(home, name)
