"""Records do what frozen dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from functools import cached_property
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenonnx import records
from tenonnx.records import record


class Body:
    """Fields and methods of both kinds of classes."""

    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("negative")

    @cached_property
    def twice(self) -> int:
        return 2 * self.a


SLOTS = {"__dict__", "__weakref__"}


def made(decorate: Callable[[type], type]) -> Any:
    body = {name: value for name, value in vars(Body).items() if name not in SLOTS}
    return decorate(type("Made", (), {**body, "__qualname__": "Made"}))


@record
class Point:
    """Can be pickled, as it has a place."""

    x: int
    y: int = 0


@record
class Named(Point):
    """Has its base's fields first."""

    name: str = "?"

    def __str__(self) -> str:
        return self.name


OURS, THEIRS = made(record), made(dataclass(frozen=True))
VALUES = st.lists(st.integers(-1, 3) | st.lists(st.just(1), max_size=1), max_size=4)
NAMED = st.dictionaries(st.sampled_from("abcd"), st.integers(-1, 3), max_size=4)


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except (TypeError, ValueError, FrozenInstanceError, AttributeError) as error:
        return type(error)


@given(VALUES, NAMED)
def test_what_is_accepted(values: list[Any], named: dict[str, Any]) -> None:
    ours = outcome(lambda: OURS(*values, **named))
    theirs = outcome(lambda: THEIRS(*values, **named))
    if isinstance(theirs, type):
        assert ours is theirs
        return
    assert vars(ours) == vars(theirs)
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours.twice == theirs.twice
    assert ours == copy.copy(ours)
    assert ours != theirs
    assert outcome(lambda: hash(ours) == hash(theirs)) in (True, TypeError)


@given(st.integers(0, 3), st.integers(0, 3))
def test_equality_and_hashes(first: int, second: int) -> None:
    assert (Point(first) == Point(second)) is (first == second)
    assert len({Point(first), Point(second), Named(first)}) == 3 - (first == second)


def test_nothing_can_be_assigned() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="'x'"):
        point.x = 2  # type: ignore[misc]  # that is what is tested
    with pytest.raises(FrozenInstanceError, match="'x'"):
        del point.x


def test_what_dataclasses_and_pickle_say() -> None:
    named = Named(1, name="n")
    assert dataclasses.is_dataclass(named)
    assert [item.name for item in dataclasses.fields(named)] == ["x", "y", "name"]
    assert dataclasses.replace(named, x=3) == Named(3, 0, "n")
    assert pickle.loads(pickle.dumps(named)) == named
    assert str(named) == "n"


@record
class Said:
    """Says more of its fields than their types."""

    kind: typing.ClassVar[str] = "said"
    size: int
    parts: list[int] = records.field(default_factory=list)
    note: str = records.field(default="none")


def test_fields_of_records_are_those_of_dataclasses() -> None:
    assert Said(3) == Said(3, [], "none")
    assert Said.note == "none"
    assert not hasattr(Said, "parts")
    shown = [(f.name, f.default, f.default_factory) for f in dataclasses.fields(Said)]
    nothing = dataclasses.MISSING
    assert shown == [
        ("size", nothing, nothing), ("parts", nothing, list), ("note", "none", nothing)
    ]  # fmt: skip
    named = records.replaced(Said(3), note="n")
    assert named == dataclasses.replace(Said(3), note="n")
    assert dataclasses.asdict(named) == {"size": 3, "parts": [], "note": "n"}
    match Said(3):
        case Said(size, _, note):
            assert (size, note) == (3, "none")


@records.changeable
class Changing:
    """Shows and compares some of its fields."""

    size: int = 0
    hidden: int = records.field(default=1, repr=False)
    own: int = records.field(default=2, compare=False)


def test_changeable_records_show_and_compare_what_they_say() -> None:
    changed = Changing(own=5)
    changed.hidden = 7
    assert repr(changed) == "Changing(size=0, own=5)"
    assert changed != Changing()
    assert Changing(own=5) == Changing()
    assert dataclasses.is_dataclass(Changing)


def test_a_dataclass_may_be_derived_of_a_record() -> None:
    @dataclass
    class Derived(Changing):
        more: int = 4

    assert [f.name for f in dataclasses.fields(Derived)] == ["size", "hidden", "own", "more"]
    assert Derived(1).more == 4


def test_errors_say_what_there_is() -> None:
    with pytest.raises(TypeError, match=r"Point has x, y; got 1 by position, z"):
        Point(1, z=3)  # type: ignore[call-arg]  # that is what is tested


class Place(records.NamedTuple):
    """Has a field for each kind of default."""

    name: str
    size: int = 3
    parts: tuple[int, ...] = ()

    @property
    def twice(self) -> int:
        """Twice its size."""
        return 2 * self.size

    def longer(self) -> Place:
        """Returns one of a greater size."""
        return self._replace(size=self.size + 1)


class Plain(typing.NamedTuple):
    """The same of ``typing``."""

    name: str
    size: int = 3
    parts: tuple[int, ...] = ()


class Nothing(records.NamedTuple):
    """Has no fields."""


def test_named_tuples_are_those_of_typing() -> None:
    kinds: tuple[Any, ...] = Place, Plain
    place, plain = kinds
    made, same = place("a", parts=(1,)), plain("a", parts=(1,))
    assert made == same == ("a", 3, (1,))
    assert (made.name, made.twice, made.longer()) == ("a", 6, ("a", 4, (1,)))
    assert made._asdict() == same._asdict()
    assert made._replace(name="b") == same._replace(name="b") == ("b", 3, (1,))
    assert place._make("abc") == plain._make("abc") == ("a", "b", "c")
    assert (place._fields, place._field_defaults) == (plain._fields, plain._field_defaults)
    assert repr(made) == repr(same).replace("Plain", "Place")
    names = [list(inspect.signature(kind).parameters) for kind in kinds]
    assert names[0] == names[1]
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert type(pickle.loads(pickle.dumps(made))) is Place
    assert Nothing() == ()
    match made:
        case Place(name, size):
            assert (name, size) == ("a", 3)
    for kind in kinds:
        for wrong in ((), ("a", 1, (), 2)):
            with pytest.raises(TypeError):
                kind(*wrong)
        with pytest.raises(TypeError):
            kind("a", other=1)
        with pytest.raises(TypeError):
            kind._make("ab")
        with pytest.raises((TypeError, ValueError)):
            kind("a")._replace(other=1)
        with pytest.raises(AttributeError):
            setattr(kind("a"), "name", "b")  # noqa: B010 - which mypy would refuse
    assert not hasattr(made, "__dict__")
