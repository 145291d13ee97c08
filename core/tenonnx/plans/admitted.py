"""The code that a plan may name: this project's, and that of plug-ins that are installed now."""

from __future__ import annotations

import importlib
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from tenonnx import installed
from tenonnx.plans import Unkept

GROUP = "tenonnx"
DISTRIBUTION = "tenonnx"

NAMES = {
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
    "operator": frozenset({"attrgetter", "itemgetter"}),
}
"""Other names that it may have, besides the functions of ``math`` and ``operator``."""

PURE = frozenset({"math", "_operator", "operator"})


_known: list[installed.EntryPoint] = []
_packages: dict[str, bool] = {}


def plugins(*, anew: bool = True) -> list[installed.EntryPoint]:
    """Returns the plug-ins that are installed now, or were when it was last asked."""
    if anew or not _packages:
        _known[:] = installed.entry_points(GROUP)
        found = {e.value.partition(":")[0].partition(".")[0]: e.distribution for e in _known}
        own = {package: distribution == DISTRIBUTION for package, distribution in found.items()}
        _packages.update({**own, "tenonnx": True, "tenonnx_array": True})
        for gone in _packages.keys() - own.keys() - {"tenonnx", "tenonnx_array"}:
            _packages.pop(gone, None)
    return list(_known)


def packages() -> dict[str, bool]:
    """Returns the packages of code, and whether each is of this project."""
    if not _packages:
        plugins()
    return _packages


def require(module: str, *, own: bool = False) -> None:
    """Makes sure that a module may be named.

    Args:
        module: Its name.
        own: It has to be one of this project.

    Raises:
        Unkept: It may not.
    """
    is_own = packages().get(module.partition(".")[0])
    if is_own is None or (own and not is_own):
        raise Unkept(f"{module} is not of tenonnx, nor of a plug-in that is installed")


def global_of(module: str, name: str) -> Any:
    """Returns a class or function that a plan names.

    Raises:
        Unkept: It may not name that.
    """
    if module in NAMES and name in NAMES[module]:
        return getattr(importlib.import_module(module), name)
    if module.startswith("numpy.dtypes") and name.endswith("DType"):
        import numpy as np

        return getattr(np.dtypes, name)
    found: Any = sys.modules.get(module)
    if module in PURE:
        found = getattr(found or importlib.import_module(module), name)
        if isinstance(found, BuiltinFunctionType):
            return found
        raise Unkept(f"{module}.{name} is no function that steps call")
    require(module)
    found = found or importlib.import_module(module)
    for part in name.split("."):
        if part not in vars(found) or isinstance(vars(found)[part], ModuleType):
            raise Unkept(f"{module} has no {name}")
        found = vars(found)[part]
        found = found.__func__ if isinstance(found, staticmethod) else found
    if not isinstance(found, type | FunctionType):
        raise Unkept(f"{module}.{name} is neither a class nor a function")
    require(found.__module__, own=isinstance(found, type))
    return found
