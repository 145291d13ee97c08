"""The code that a plan may name: what is marked as cacheable, and numpy's dtypes and arrays."""

from __future__ import annotations

import importlib
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable, is_cacheable
from tenonnx.plan_cache import NotCacheable
from tenonnx.process.distributions import EntryPoint, entry_points
from tenonnx.provider import Provider

PLUGIN_GROUP = "tenonnx"

# Names of others, by module.
ALLOWED_NAMES = {
    "_operator": frozenset({"add", "mul", "not_"}),
    "builtins": frozenset({"complex", "range", "slice"}),
    "functools": frozenset({"partial"}),
    "ml_dtypes": frozenset(
        {"bfloat16", "float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"}
        | {"float8_e5m2fnuz", "float8_e8m0fnu", "int2", "int4", "uint2", "uint4"}
    ),
    "numpy": frozenset({"dtype", "ndarray"}),
    "numpy._core.multiarray": frozenset({"_reconstruct", "scalar"}),
    "numpy._core.numeric": frozenset({"_frombuffer"}),
}

# Numpy's functions that an operator is, besides ufuncs.
FUNCTIONS = frozenset({"where"})

# Packages of the CPU's plans: the list of plug-ins takes 40 ms, for which these do not wait.
CPU_PACKAGES = frozenset(
    {"tenonnx", "tenonnx_array", "tenonnx_contrib", "tenonnx_cpu", "tenonnx_quant"}
)


def plugins() -> list[EntryPoint]:
    """Return the plug-ins that are installed."""
    return entry_points(PLUGIN_GROUP)


def _module(name: str) -> ModuleType:
    """Return a module of tenonnx or of an installed plug-in: no other is imported for a plan."""
    root = name.partition(".")[0]
    if root not in CPU_PACKAGES and all(root != each.package for each in plugins()):
        raise NotCacheable(f"{name} is not of tenonnx, nor of a plug-in that is installed")
    return sys.modules.get(name) or importlib.import_module(name)


def global_of(module: str, name: str) -> Any:
    """Return a class or function that a plan names.

    Raises:
        NotCacheable: It may not name that.
    """
    if name in ALLOWED_NAMES.get(module, ()):
        return getattr(importlib.import_module(module), name)
    found = vars(_module(module)).get(name)
    if not is_admitted(found):
        raise NotCacheable(f"{module}.{name} is not marked with tenonnx.cacheable")
    return found


def is_admitted(thing: Any) -> bool:
    """Return whether a class or function is marked, or is a provider."""
    return is_cacheable(thing) or (isinstance(thing, type) and issubclass(thing, Provider))


def reduced(thing: Any) -> Any:
    """Return how pickle is to keep a class or function: by its name.

    Raises:
        NotCacheable: A plan may not name it.
    """
    module, name = thing.__module__, thing.__qualname__
    if global_of(module, name) is not thing:
        raise NotCacheable(f"{module}.{name} is another one")
    return NotImplemented


def reduced_builtin(function: BuiltinFunctionType) -> Any:
    """Return how pickle is to keep a function of machine code."""
    again = getattr(function.__self__, "reduce_in_plan", None)
    return reduced(function) if again is None else again()


def reduced_method(method: MethodType) -> Any:
    """Return how pickle is to keep a bound method: by its name."""
    name = method.__func__.__name__
    if bound(method.__self__, name) != method:
        raise NotCacheable(f"{method.__func__.__qualname__} is not found where it was defined")
    return bound, (method.__self__, name)


def reduced_numpy(function: Any) -> Any:
    """Return how pickle is to keep a function of numpy's: by its name."""
    name = function.__name__
    if of_numpy(name) is not function:
        raise NotCacheable(f"numpy has no public name for {function!r}")
    return of_numpy, (name,)


def reduced_module(module: ModuleType) -> Any:
    """Return how pickle is to keep the array namespace of steps on the host."""
    if module is not np:
        raise NotCacheable(f"a step has the module {module.__name__}")
    return numpy, ()


@cacheable
def bound(owner: object, name: str) -> MethodType:
    """Return a method of an object, of a marked class."""
    found = getattr(owner, name, None)
    if isinstance(found, MethodType):
        homes = (each for each in type(owner).__mro__ if vars(each).get(name) is found.__func__)
        if any(map(is_cacheable, homes)):
            return found
    raise NotCacheable(f"{type(owner).__name__}.{name} is no method of a marked class")


@cacheable
def of_numpy(name: str) -> Any:
    """Return a function of numpy's that is an operator."""
    found = getattr(np, name, None)
    if isinstance(found, np.ufunc) or name in FUNCTIONS:
        return found
    raise NotCacheable(f"numpy.{name} is no operator's function")


@cacheable
def numpy() -> ModuleType:
    """Return the array namespace of steps on the host."""
    return np


# The reducers of what is not data, by its type.
REDUCERS: dict[type, Any] = {
    BuiltinFunctionType: reduced_builtin,
    FunctionType: reduced,
    MethodType: reduced_method,
    ModuleType: reduced_module,
    np.ufunc: reduced_numpy,
    type(np.where): reduced_numpy,
}
