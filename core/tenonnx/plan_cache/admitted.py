"""The code that a plan may name: this project's, and that of plug-ins that are installed now."""

from __future__ import annotations

import importlib
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from tenonnx.distributions import EntryPoint, entry_points
from tenonnx.plan_cache import NotCacheable

PLUGIN_GROUP = "tenonnx"

# Other names that it may have, besides the functions of ``math`` and ``operator``.
ALLOWED_NAMES = {
    "builtins": frozenset(
        {"abs", "bool", "bytes", "complex", "dict", "float", "frozenset", "int", "len", "list"}
        | {"max", "min", "range", "set", "slice", "str", "sum", "tuple"}
    ),
    "collections": frozenset({"Counter", "OrderedDict", "defaultdict", "deque"}),
    "functools": frozenset({"partial"}),
    "ml_dtypes": frozenset(
        {"bfloat16", "float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"}
        | {"float8_e5m2fnuz", "float8_e8m0fnu", "int2", "int4", "uint2", "uint4"}
    ),
    "numpy": frozenset({"dtype", "ndarray"}),
    "numpy._core.multiarray": frozenset({"_reconstruct", "scalar"}),
    "numpy._core.numeric": frozenset({"_frombuffer"}),
}

PURE = frozenset({"math", "_operator", "operator"})


_known: list[EntryPoint] = []
_packages: set[str] = set()


def plugins(*, anew: bool = True) -> list[EntryPoint]:
    """Return the plug-ins that are installed now, or were when it was last asked."""
    if anew or not _packages:
        _known[:] = entry_points(PLUGIN_GROUP)
        found = {e.value.partition(":")[0].partition(".")[0] for e in _known}
        found |= {"tenonnx", "tenonnx_array"}
        _packages.update(found)
        _packages.intersection_update(found)
    return list(_known)


def packages() -> set[str]:
    """Return the packages of code that a plan may name."""
    if not _packages:
        plugins()
    return _packages


def require(module: str) -> None:
    """Make sure that a module may be named.

    Raises:
        NotCacheable: It may not.
    """
    if module.partition(".")[0] not in packages():
        raise NotCacheable(f"{module} is not of tenonnx, nor of a plug-in that is installed")


def global_of(module: str, name: str) -> Any:
    """Return a class or function that a plan names.

    Raises:
        NotCacheable: It may not name that.
    """
    if module in ALLOWED_NAMES and name in ALLOWED_NAMES[module]:
        return getattr(importlib.import_module(module), name)
    if module.startswith("numpy.dtypes") and name.endswith("DType"):
        import numpy as np

        return getattr(np.dtypes, name)
    found: Any = sys.modules.get(module)
    if module in PURE:
        found = getattr(found or importlib.import_module(module), name)
        if isinstance(found, BuiltinFunctionType):
            return found
        raise NotCacheable(f"{module}.{name} is no function that steps call")
    require(module)
    found = found or importlib.import_module(module)
    for part in name.split("."):
        if part not in vars(found) or isinstance(vars(found)[part], ModuleType):
            raise NotCacheable(f"{module} has no {name}")
        found = vars(found)[part]
        found = found.__func__ if isinstance(found, staticmethod) else found
    if not isinstance(found, type | FunctionType):
        raise NotCacheable(f"{module}.{name} is neither a class nor a function")
    require(found.__module__)  # an installed plug-in may have imported anything
    return found
