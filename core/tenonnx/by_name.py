"""The mark of classes and functions that the file of a cached plan may name."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import Any, TypeVar

T = TypeVar("T")

CACHEABLE_ATTRIBUTE = "__cacheable__"


def cacheable(thing: T) -> T:
    """Mark a class or function, so that the files of cached plans may name it.

    The author of such a file decides with which arguments it is called, and with which a class's
    methods are. So with no arguments may it open, write or delete files, or run text as code.

    Args:
        thing: Of a module, not inside another class or function.
    """
    setattr(thing, CACHEABLE_ATTRIBUTE, True)
    return thing


def is_cacheable(thing: Any) -> bool:
    """Return whether something has the mark itself: a subclass does not inherit it."""
    return getattr(thing, "__dict__", {}).get(CACHEABLE_ATTRIBUTE) is True


def mark_functions(call: Any, table: object) -> None:
    """Mark the functions of an operator's kernel, if they are of the module that has its table.

    Others would not be marked where the file of a plan has their module imported alone.
    """
    if isinstance(call, functools.partial):
        for each in (call.func, *call.args, *call.keywords.values()):
            mark_functions(each, table)
    elif isinstance(call, FunctionType):
        module = inspect.unwrap(call).__globals__
        if any(each is table for each in module.values()):
            cacheable(call)
