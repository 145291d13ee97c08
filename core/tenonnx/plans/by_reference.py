"""Functions by reference: which module has one and where in it. Code is never kept.

A function inside another is found by the places of their code among each other's constants, so
that whoever opens a plan makes it anew, of the module's own code and of what it was closed over.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tenonnx.operators import OperatorTable
from tenonnx.plans import Unkept
from tenonnx.plans.admitted import packages, require

INSIDE = ".<locals>."

FILES = frozenset(
    {"fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap", "save", "savetxt", "savez"}
    | {"savez_compressed"}
)
"""Functions of numpy's that read or write files, which no step calls."""

LRU = type(functools.lru_cache(len))


def reduced_function(function: FunctionType) -> Any:
    """Returns how pickle is to keep a function; ``NotImplemented`` for one with a name.

    Raises:
        Unkept: It cannot be found again.
    """
    outer, inside, _ = function.__qualname__.partition(INSIDE)
    if inside:
        path = _place(_plain(_found(function.__module__, outer)), function.__code__)
        if path is None:
            raise Unkept(f"{_named(function)} is not found where it was defined")
        own = function.__defaults__, function.__kwdefaults__, function.__closure__
        return nested, (function.__module__, outer, path, *own)
    found = _found(function.__module__, outer, None)
    if found is function:
        return NotImplemented
    if _plain(found) is function:
        return plain, (function.__module__, outer)
    if (place := _place_in_table(function)) is not None:
        return kernel, place
    for name, table in vars(_module(function.__module__)).items():
        if isinstance(table, dict):
            for key, entry in table.items():
                if entry is function:
                    return entry_of, (function.__module__, name, key)
    raise Unkept(f"{_named(function)} has no name in its module")


def nested(
    module: str,
    outer: str,
    path: tuple[int, ...],
    defaults: tuple[Any, ...] | None,
    keywords: dict[str, Any] | None,
    closure: tuple[CellType, ...] | None,
) -> FunctionType:
    """Returns a function that another defines, of what it was closed over."""
    around = plain(module, outer)
    code, names = around.__code__, [outer]
    for place in path:
        code = code.co_consts[place]
        names.append(code.co_name)
    made = FunctionType(code, around.__globals__, code.co_name, defaults, closure)
    made.__qualname__ = INSIDE.join(names)
    made.__kwdefaults__ = keywords
    return made


def plain(module: str, name: str) -> FunctionType:
    """Returns a module's or class's function without what decorators put around it."""
    found = _plain(_found(module, name))
    if not isinstance(found, FunctionType):
        raise Unkept(f"{module}.{name} is no function")
    return found


def kernel(module: str, domain: str, op_type: str, since: int) -> Callable[..., Any]:
    """Returns the function of a kernel that only its module's table names."""
    call = _table_of(module)._kernel((domain, op_type), since).call
    if not isinstance(call, FunctionType):
        raise Unkept(f"{module} has no function for {op_type}")
    return call


def entry_of(module: str, table: str, key: object) -> FunctionType:
    """Returns the function that a module has in a table under a key."""
    found = _found(module, table)[key]
    if not isinstance(found, FunctionType):
        raise Unkept(f"{module}.{table} has no function under {key!r}")
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
    """Returns how pickle is to keep a bound method."""
    name = method.__func__.__name__
    if getattr(method.__self__, name, None) != method:
        raise Unkept(f"{method.__func__.__qualname__} is not found where it was defined")
    return bound, (method.__self__, name)


def bound(owner: object, name: str) -> MethodType:
    """Returns a method of an object or class."""
    found = getattr(owner, name)
    if not isinstance(found, MethodType):
        raise Unkept(f"{type(owner).__name__}.{name} is no method")
    return found


def reduced_cell(cell: CellType) -> Any:
    """Returns how pickle is to keep what functions share."""
    try:
        return new_cell, (), (cell.cell_contents,), None, None, fill
    except ValueError:  # it is empty
        return new_cell, ()


def new_cell() -> CellType:
    """Returns an empty cell."""
    return CellType()


def fill(cell: CellType, contents: tuple[object]) -> None:
    """Fills a cell."""
    (cell.cell_contents,) = contents


def reduced_cache(cache: Any) -> Any:
    """Returns how pickle is to keep a function that caches: without what it has cached."""
    function = cache.__wrapped__
    if isinstance(function, FunctionType) and INSIDE not in function.__qualname__:
        return named, (function.__module__, function.__qualname__)
    return cached, (function, cache.cache_parameters()["maxsize"])


def cached(function: Callable[..., Any], most: int | None) -> Callable[..., Any]:
    """Returns a function that caches so many results."""
    return functools.lru_cache(most)(function)


def named(module: str, name: str) -> Any:
    """Returns what a module names, such as a function that caches."""
    found = _found(module, name)
    if not isinstance(found, LRU):
        raise Unkept(f"{module}.{name} does not cache")
    return found


def reduced_sentinel(thing: object) -> Any:
    """Returns how pickle is to keep an object that is nothing but itself, by a module's name."""
    for module, names in list(sys.modules.items()):
        if module.partition(".")[0] in packages():
            for name, value in vars(names).items():
                if value is thing:
                    return sentinel, (module, name)
    raise Unkept("no module names an object that is nothing but itself")


def sentinel(module: str, name: str) -> object:
    """Returns an object that is nothing but itself."""
    found = _found(module, name)
    if type(found) is not object:
        raise Unkept(f"{module}.{name} is something")
    return found


def of_numpy(name: str) -> Any:
    """Returns a function of numpy's."""
    found = functools.reduce(getattr, name.split("."), np)
    if name in FILES or isinstance(found, ModuleType) or not callable(found):
        raise Unkept(f"numpy.{name} is no function that steps call")
    return found


def reduced_numpy(function: Any) -> Any:
    """Returns how pickle is to keep a function of numpy's."""
    name = function.__name__
    for prefix in ("", "linalg.", "fft.", "strings.", "char."):
        try:
            if of_numpy(prefix + name) is function:
                return of_numpy, (prefix + name,)
        except AttributeError:
            continue
    raise Unkept(f"numpy has no public name for {function!r}")


def namespace(name: str) -> ModuleType:
    """Returns an array namespace."""
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
            raise Unkept(f"{module} has no {name}")
        found = here[part]
    return found


def _plain(found: Any) -> Any:
    """Returns the function inside what decorators made of it."""
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


def _place(function: Any, wanted: CodeType) -> tuple[int, ...] | None:
    """Returns where a function's code is in that of another; ``None`` if it is not there."""
    if not isinstance(function, FunctionType):
        return None

    def below(code: CodeType) -> tuple[int, ...] | None:
        if code is wanted:
            return ()
        for place, constant in enumerate(code.co_consts):
            if isinstance(constant, CodeType) and (rest := below(constant)) is not None:
                return (place, *rest)
        return None

    return below(function.__code__)


def _named(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"
