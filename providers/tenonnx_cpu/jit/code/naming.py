"""Names that say what a function computes, for functions that are made in several variants.

A compiled function's symbol has its name, its argument types and a number, by the order in which a
process compiled. Kernels that different processes wrote to the disk cache can therefore have
functions of one symbol, of which the linker keeps one: all must then compute the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def name_by_content(function: F) -> F:
    """Add to a function's name a digest of what it is closed over; return the function."""
    if function.__closure__ or function.__defaults__:
        digest = hashlib.sha256(_closed_over(function).encode()).hexdigest()[:16]
        function.__qualname__ = f"{function.__qualname__}_{digest}"
    return function


def _closed_over(function: Any) -> str:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return ",".join(map(_content, [*cells, *(function.__defaults__ or ())]))


def _content(thing: Any) -> str:
    """Describe a value in the same way in every process."""
    if isinstance(thing, tuple | list):
        return f"({','.join(map(_content, thing))})"
    # A dispatcher has the function in py_func, an intrinsic in _defn.
    function = getattr(thing, "py_func", None) or getattr(thing, "_defn", thing)
    if not hasattr(function, "__code__"):
        text = repr(thing)
        return f"{type(thing).__qualname__}:{text if ' at 0x' not in text else ''}"
    code = hashlib.sha256(function.__code__.co_code).hexdigest()[:16]
    name = f"{function.__module__}.{function.__qualname__}"
    return f"{name}:{code}({_closed_over(function)})"
