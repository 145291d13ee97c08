"""Records do what frozen dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from functools import cached_property
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_errors_say_what_there_is() -> None:
    with pytest.raises(TypeError, match=r"Point has x, y; got 1 by position, z"):
        Point(1, z=3)  # type: ignore[call-arg]  # that is what is tested
