"""Functions by reference: which module has one, and under which name. Code is never kept.

A function inside another has no name, so a step that calls one is not kept: its parameters belong
into a ``functools.partial`` of a module's function, or into an instance of a class.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tenonnx.operators import OperatorTable
from tenonnx.plan_cache import NotCacheable
from tenonnx.plan_cache.admitted import packages, require

INSIDE = ".<locals>."

# The prefixes of numpy's names whose functions steps call.
NUMPY = ("", "linalg.", "fft.", "strings.", "char.")

# The types of these functions; numpy's test runners are callable objects of other types.
NUMPYS = (np.ufunc, type(np.stack), BuiltinFunctionType, FunctionType)

# Functions of numpy's that read or write files, which no step calls.
FILES = frozenset(
    {"fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap", "save", "savetxt", "savez"}
    | {"savez_compressed"}
)

LRU = type(functools.lru_cache(len))


def reduced_function(function: FunctionType) -> Any:
    """Return how pickle is to keep a function; ``NotImplemented`` for one with a name.

    Raises:
        NotCacheable: It cannot be found again.
    """
    name = function.__qualname__
    if INSIDE in name:
        raise NotCacheable(f"{_named(function)} is a function inside another, which has no name")
    found = _found(function.__module__, name, None)
    if found is function:
        return NotImplemented
    if _plain(found) is function:
        return plain, (function.__module__, name)
    if (place := _place_in_table(function)) is not None:
        return kernel, place
    for owner, table in vars(_module(function.__module__)).items():
        if isinstance(table, dict):
            for key, entry in table.items():
                if entry is function:
                    return entry_of, (function.__module__, owner, key)
    raise NotCacheable(f"{_named(function)} has no name in its module")


def plain(module: str, name: str) -> FunctionType:
    """Return a module's or class's function without what decorators put around it."""
    found = _plain(_found(module, name))
    if not isinstance(found, FunctionType):
        raise NotCacheable(f"{module}.{name} is no function")
    return found


def kernel(module: str, domain: str, op_type: str, since: int) -> Callable[..., Any]:
    """Return the function of a kernel that only its module's table names."""
    call = _table_of(module)._kernel((domain, op_type), since).call
    if not isinstance(call, FunctionType):
        raise NotCacheable(f"{module} has no function for {op_type}")
    return call


def entry_of(module: str, table: str, key: object) -> FunctionType:
    """Return the function that a module has in a table under a key."""
    found = _found(module, table)[key]
    if not isinstance(found, FunctionType):
        raise NotCacheable(f"{module}.{table} has no function under {key!r}")
    return found


def _place_in_table(function: FunctionType) -> tuple[str, str, str, int] | None:
    for (domain, op_type), kernels in _table_of(function.__module__)._kernels.items():
        for since, found in kernels.items():
            if not isinstance(found, str) and found.call is function:
                return function.__module__, domain, op_type, since
    return None


def _table_of(module: str) -> OperatorTable:
    table = vars(_module(module)).get("table")
    return table if isinstance(table, OperatorTable) else OperatorTable()


def reduced_method(method: MethodType) -> Any:
    """Return how pickle is to keep a bound method."""
    name = method.__func__.__name__
    if getattr(method.__self__, name, None) != method:
        raise NotCacheable(f"{method.__func__.__qualname__} is not found where it was defined")
    return bound, (method.__self__, name)


def bound(owner: object, name: str) -> MethodType:
    """Return a method of an object or class."""
    found = getattr(owner, name)
    if not isinstance(found, MethodType):
        raise NotCacheable(f"{type(owner).__name__}.{name} is no method")
    return found


def reduced_cache(cache: Any) -> Any:
    """Return how pickle is to keep a function that caches: without what it has cached."""
    function = cache.__wrapped__
    if not isinstance(function, FunctionType) or INSIDE in function.__qualname__:
        raise NotCacheable(f"{function!r} is a function inside another, which has no name")
    return named, (function.__module__, function.__qualname__)


def named(module: str, name: str) -> Any:
    """Return what a module names, such as a function that caches."""
    found = _found(module, name)
    if not isinstance(found, LRU):
        raise NotCacheable(f"{module}.{name} does not cache")
    return found


def reduced_sentinel(thing: object) -> Any:
    """Return how pickle is to keep an object that is nothing but itself, by a module's name."""
    for module, names in list(sys.modules.items()):
        if module.partition(".")[0] in packages():
            for name, value in vars(names).items():
                if value is thing:
                    return sentinel, (module, name)
    raise NotCacheable("no module names an object that is nothing but itself")


def sentinel(module: str, name: str) -> object:
    """Return an object that is nothing but itself."""
    found = _found(module, name)
    if type(found) is not object:
        raise NotCacheable(f"{module}.{name} is something")
    return found


def of_numpy(name: str) -> Any:
    """Return a function of numpy's that steps may call, such as ``linalg.inv``.

    Raises:
        NotCacheable: There is none of the name: modules such as ``testing`` run programs.
    """
    prefix, dot, last = name.rpartition(".")
    if prefix + dot in NUMPY and name not in FILES:
        found = getattr(getattr(np, prefix) if dot else np, last, None)
        if isinstance(found, NUMPYS):
            return found
    raise NotCacheable(f"numpy.{name} is no function that steps call")


def reduced_numpy(function: Any) -> Any:
    """Return how pickle is to keep a function of numpy's."""
    name = function.__name__
    for prefix in NUMPY:
        with contextlib.suppress(NotCacheable):
            if of_numpy(prefix + name) is function:
                return of_numpy, (prefix + name,)
    raise NotCacheable(f"numpy has no public name for {function!r}")


def namespace(name: str) -> ModuleType:
    """Return an array namespace."""
    return np if name == "numpy" else _module(name)


def _module(name: str) -> ModuleType:
    require(name)
    return sys.modules.get(name) or importlib.import_module(name)


def _found(module: str, name: str, *default: Any) -> Any:
    found: Any = _module(module)
    for part in name.split("."):
        here = vars(found) if isinstance(found, type | ModuleType) else {}
        if part not in here:
            if default:
                return default[0]
            raise NotCacheable(f"{module} has no {name}")
        found = here[part]
    return found


def _plain(found: Any) -> Any:
    """Return the function inside what decorators made of it."""
    while not isinstance(found, FunctionType):
        for around in ("__wrapped__", "__func__", "fget", "func"):
            if (inner := getattr(found, around, None)) is not None:
                found = inner
                break
        else:
            return found
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return found


def _named(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"
