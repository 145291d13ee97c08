"""Records: frozen dataclasses, and named tuples, that are there as soon as they are defined.

``dataclass`` compiles half a dozen methods for every class, half a millisecond in all, and a
session needs fifty classes. Records share theirs. ``typing.NamedTuple`` compiles every annotation.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

T = TypeVar("T")

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _NamedTuples(type):
        """Makes what ``typing.NamedTuple`` would, and compiles no annotation for it."""

        def __new__(mcs, name: str, _: tuple[Any, ...], own: dict[str, Any]) -> Any:
            names = tuple(own.get("__annotations__", ()))
            defaults = [own[each] for each in names if each in own]
            made = namedtuple(name, names, defaults=defaults, module=own["__module__"])
            for key, value in own.items():
                if key not in names and key not in ("__module__", "__qualname__"):
                    setattr(made, key, value)
            made.__qualname__ = own["__qualname__"]
            return made

    class _Bases:
        def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
            return (_Named,)

    _Named = type.__new__(_NamedTuples, "NamedTuple", (), {})
    NamedTuple = _Bases()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Decorates a class like ``dataclasses.dataclass(frozen=True)``; it is a dataclass, too."""
    return _made(cls, _Methods)


@dataclass_transform(field_specifiers=(field,))
def changeable(cls: type[T]) -> type[T]:
    """Decorates a class like ``dataclasses.dataclass``; it is a dataclass, too."""
    made: Any = _made(cls, _Changeable)
    made.__hash__ = None
    return cls


def _made(cls: type[T], methods: type) -> type[T]:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # lest the signature be made, at some expense
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    own = vars(cls)
    for name, method in vars(methods).items():
        if callable(method) and (name not in own or own[name] is None):
            setattr(made, name, method)
    fields = dataclasses.fields(made)
    made._names = tuple(field.name for field in fields)
    made._fields = frozenset(made._names)
    made._defaults = {f.name: f.default for f in fields if f.default is not MISSING}
    made._factories = {
        f.name: f.default_factory for f in fields if f.default_factory is not MISSING
    }
    return cls


class _Methods:
    """What records share."""

    _names: ClassVar[tuple[str, ...]]
    _fields: ClassVar[frozenset[str]]
    _defaults: ClassVar[dict[str, Any]]
    _factories: ClassVar[dict[str, Callable[[], Any]]]

    def __init__(self, *values: Any, **named: Any) -> None:
        names, state, count = self._names, vars(self), len(values)
        state.update(self._defaults)
        state.update(zip(names, values, strict=False))
        state.update(named)
        if len(state) < len(names):
            state.update((n, make()) for n, make in self._factories.items() if n not in state)
        twice = count and named and not named.keys().isdisjoint(names[:count])
        if count > len(names) or twice or state.keys() != self._fields:
            raise _misfit(self, count, named)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Checks what was given, in classes that define it."""

    def _values(self) -> tuple[Any, ...]:
        state = vars(self)
        return tuple(state[name] for name in self._names)

    def __repr__(self) -> str:
        pairs = zip(self._names, self._values(), strict=True)
        values = ", ".join(f"{name}={value!r}" for name, value in pairs)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


class _Changeable:
    """What those share that can be changed: ``__setattr__`` is the class's own."""

    _names: ClassVar[tuple[str, ...]]
    _defaults: ClassVar[dict[str, Any]]
    _factories: ClassVar[dict[str, Callable[[], Any]]]

    def __init__(self, *values: Any, **named: Any) -> None:
        names, count = self._names, len(values)
        given = {**dict(zip(names, values, strict=False)), **named}
        twice = count and not named.keys().isdisjoint(names[:count])
        every = self._defaults | {n: make() for n, make in self._factories.items()} | given
        if count > len(names) or twice or every.keys() != set(names):
            raise _misfit(self, count, named)
        for name in names:
            setattr(self, name, every[name])

    def __repr__(self) -> str:
        shown = (field.name for field in dataclasses.fields(self) if field.repr)  # type: ignore[arg-type]  # is one
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        compared = (field.name for field in dataclasses.fields(self) if field.compare)  # type: ignore[arg-type]  # is one
        return all(getattr(self, name) == getattr(other, name) for name in compared)


def _misfit(made: Any, count: int, named: dict[str, Any]) -> TypeError:
    given = ", ".join((f"{count} by position", *named))
    return TypeError(f"{type(made).__name__} has {', '.join(made._names)}; got {given}")
