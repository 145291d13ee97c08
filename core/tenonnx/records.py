"""Records: frozen dataclasses, and named tuples, that are there as soon as they are defined.

``dataclass`` compiles half a dozen methods for every class, half a millisecond in all, and a
session needs fifty classes. Records share theirs, and import ``dataclasses`` when somebody looks
at one as at a dataclass. ``typing.NamedTuple`` compiles every annotation,
and ``collections.namedtuple`` a constructor.
"""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]  # of its named tuples
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

T = TypeVar("T")

MISSING = object()
"""Stands for a default that a field does not have."""

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _Tuple(tuple):
        """The base of named tuples: the methods of those of ``collections``."""

        __slots__ = ()

        @classmethod
        def _make(cls, values: Iterable[Any]) -> Any:
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **named: Any) -> Any:
            made = self._make(map(named.pop, self._fields, self))
            if named:
                raise ValueError(f"Got unexpected field names: {list(named)!r}")
            return made

        __replace__ = _replace

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            pairs = zip(self._fields, self, strict=True)
            return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in pairs)})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    new = tuple.__new__
    # Of most records: to compile one takes as long as to make three classes.
    SHORT = (
        lambda _cls: new(_cls, ()),
        lambda _cls, a: new(_cls, (a,)),
        lambda _cls, a, b: new(_cls, (a, b)),
        lambda _cls, a, b, c: new(_cls, (a, b, c)),
        lambda _cls, a, b, c, d: new(_cls, (a, b, c, d)),
        lambda _cls, a, b, c, d, e: new(_cls, (a, b, c, d, e)),
        lambda _cls, a, b, c, d, e, f: new(_cls, (a, b, c, d, e, f)),
        lambda _cls, a, b, c, d, e, f, g: new(_cls, (a, b, c, d, e, f, g)),
        lambda _cls, a, b, c, d, e, f, g, h: new(_cls, (a, b, c, d, e, f, g, h)),
        lambda _cls, a, b, c, d, e, f, g, h, i: new(_cls, (a, b, c, d, e, f, g, h, i)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j: new(_cls, (a, b, c, d, e, f, g, h, i, j)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j, k: new(_cls, (a, b, c, d, e, f, g, h, i, j, k)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j, k, m: new(
            _cls, (a, b, c, d, e, f, g, h, i, j, k, m)
        ),
    )

    class _NamedTuples(type):
        """Makes what ``typing.NamedTuple`` would, and compiles nothing for it."""

        def __new__(mcs, name: str, _: tuple[Any, ...], own: dict[str, Any]) -> Any:
            names = tuple(own.get("__annotations__", ()))
            defaults = {each: own[each] for each in names if each in own}
            body = own | {n: _tuplegetter(i, f"Field {i}") for i, n in enumerate(names)}
            body |= {"__slots__": (), "__match_args__": names, "_fields": names}
            body |= {"_field_defaults": defaults, "__new__": _maker(names, defaults)}
            return type(name, (_Tuple,), body)

    def _maker(names: tuple[str, ...], defaults: dict[str, Any]) -> Any:
        """Returns ``__new__`` of a named tuple."""
        code = _code(len(names)).replace(co_name="__new__", co_varnames=("_cls", *names))
        return FunctionType(code, MAKING, "__new__", tuple(defaults.values()) or None)

    def _code(count: int) -> CodeType:
        """Returns the code of all named tuples of so many fields, which differ in names alone."""
        if count < len(SHORT):
            return SHORT[count].__code__
        given = "".join(f"a{number}, " for number in range(count))
        made: CodeType = eval(f"lambda _cls, {given}: new(_cls, ({given}))").__code__
        return made

    MAKING = {"new": new, "__builtins__": {}}

    class _Bases:
        def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
            return (_Named,)

    _Named = type.__new__(_NamedTuples, "NamedTuple", (), {})
    NamedTuple = _Bases()


class Field(NamedTuple):
    """The properties of a record's field besides its type, as in ``dataclasses.field``.

    Attributes:
        default, default_factory: What it is where it is not given; ``MISSING`` if that is nowhere.
        repr, compare: Whether it is shown and compared, in changeable ones.
    """

    default: Any = MISSING
    default_factory: Any = MISSING
    repr: bool = True
    compare: bool = True


def field(
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    repr: bool = True,  # noqa: A002 - the name that dataclasses have for it
    compare: bool = True,
) -> Any:
    """Says more of a field than its type; see ``Field``."""
    return Field(default, default_factory, repr, compare)


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


def names_of(kind: type) -> tuple[str, ...]:
    """Returns the names of a record's fields."""
    names: tuple[str, ...] = kind._names  # type: ignore[attr-defined]  # a record has them
    return names


def replaced(made: T, **changes: Any) -> T:
    """Returns a record of the same fields but for some, as ``dataclasses.replace`` does."""
    given = {name: getattr(made, name) for name in names_of(type(made))}
    return type(made)(**given | changes)


def _made(cls: type[T], methods: type) -> type[T]:
    made: Any = cls
    own = vars(cls)
    for name, method in vars(methods).items():
        if callable(method) and (name not in own or own[name] is None):
            setattr(made, name, method)
    made._about = about = _declared(cls)
    made._names = tuple(about)
    setattr(made, "__match_args__", made._names)  # noqa: B010 - mypy takes it for the class's own
    made._fields = frozenset(about)
    made._defaults = {n: f.default for n, (_, f) in about.items() if f.default is not MISSING}
    made._factories = {
        n: f.default_factory for n, (_, f) in about.items() if f.default_factory is not MISSING
    }
    for name in OF_DATACLASSES:
        setattr(made, name, _Asked(cls, name))
    return cls


def _declared(cls: type) -> dict[str, tuple[Any, Field]]:
    """Returns the types of a class's fields and what is said of them, its bases' first."""
    found: dict[str, tuple[Any, Field]] = {}
    for base in cls.__mro__[:0:-1]:
        found.update(vars(base).get("_about", {}))
    for name, kind in cls.__annotations__.items():
        if "ClassVar" in str(kind).partition("[")[0]:
            continue
        said = vars(cls).get(name, MISSING)
        if type(said).__module__ == "dataclasses":
            said = _translated(said)
        if type(said) is not Field:
            said = Field(said)
        elif said.default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, said.default)
        found[name] = kind, said
    return found


def _translated(theirs: Any) -> Field:
    """Returns a field of ``dataclasses``, whose word for nothing is another one, as one of ours."""
    from dataclasses import MISSING as NOTHING  # whoever made it has imported them

    given = (theirs.default, theirs.default_factory)
    default, factory = (MISSING if each is NOTHING else each for each in given)
    return Field(default, factory, theirs.repr, theirs.compare)


OF_DATACLASSES = ("__dataclass_fields__", "__dataclass_params__")
"""The attributes by which ``dataclasses`` recognizes a class."""


class _Asked:
    """An attribute by which a class is a dataclass, made when it is asked for: few are."""

    def __init__(self, cls: type, name: str) -> None:
        self._class, self._name = cls, name

    def __get__(self, _: object, __: type) -> Any:
        import dataclasses  # takes as long to import as three modules of a session

        cls: Any = self._class
        body: dict[str, Any] = {"__module__": cls.__module__, "__doc__": cls.__name__}
        body["__annotations__"] = {name: kind for name, (kind, _) in cls._about.items()}
        for name, (_, said) in cls._about.items():
            given = {k: v for k, v in said._asdict().items() if v is not MISSING}
            body[name] = dataclasses.field(**given)
        like: type = dataclasses.dataclass(init=False, repr=False, eq=False)(type("_", (), body))
        for name in OF_DATACLASSES:
            setattr(cls, name, vars(like)[name])
        return vars(cls)[self._name]


class _Methods:
    """The base class of records."""

    _about: ClassVar[dict[str, tuple[Any, Field]]]
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
        raise _frozen(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise _frozen(f"cannot delete field {name!r}")


class _Changeable:
    """The base class of mutable records: ``__setattr__`` is the class's own."""

    _about: ClassVar[dict[str, tuple[Any, Field]]]
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
        shown = (name for name, (_, said) in self._about.items() if said.repr)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        compared = (name for name, (_, said) in self._about.items() if said.compare)
        return all(getattr(self, name) == getattr(other, name) for name in compared)


def _frozen(message: str) -> Exception:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(message)


def _misfit(made: Any, count: int, named: dict[str, Any]) -> TypeError:
    given = ", ".join((f"{count} by position", *named))
    return TypeError(f"{type(made).__name__} has {', '.join(made._names)}; got {given}")
