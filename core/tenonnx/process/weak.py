"""Weak references whose callbacks run no Python code.

Python raises an interrupt in whatever Python code the main thread runs next. Within the callback
of a weak reference, ``weakref.finalize`` or ``__del__``, that is printed and lost, and callbacks
of ``weakref.WeakValueDictionary`` are Python code. In one that is C's, nothing is raised.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class _Reference(weakref.ref[T]):
    """A weak reference that has the function which its callback calls."""

    __slots__ = ("call",)
    call: Callable[..., object]


def when_gone(thing: T, call: Callable[..., object], *arguments: object) -> weakref.ref[T]:
    """Return a weak reference that calls a function when its object is gone.

    Args:
        thing: The object.
        call: A function that is written in C, such as a list's ``append``.
        arguments: Its arguments.
    """
    reference = _Reference(thing, operator.methodcaller("call", *arguments))
    reference.call = call
    return reference


class WeakTable(Generic[K, T]):
    """Objects by keys, each for as long as somebody else holds it."""

    def __init__(self) -> None:
        self._references: dict[K, weakref.ref[Any]] = {}

    def get(self, key: K) -> T | None:
        """Return the object of a key, if there is one."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def __setitem__(self, key: K, thing: T) -> None:
        self._references[key] = when_gone(thing, self._references.pop, key, None)

    def setdefault(self, key: K, thing: T) -> T:
        """Return the object of a key, which is this one if there is none yet."""
        if (found := self.get(key)) is None:
            self[key] = found = thing
        return found

    def values(self) -> list[T]:
        """Return the objects that there are."""
        things = (reference() for reference in list(self._references.values()))
        return [thing for thing in things if thing is not None]
