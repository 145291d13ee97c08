"""Regular expressions in time linear in the text, whatever they are.

Python's ``re`` tries one way after another, of which there may be 2 to the length of the text.
Here all ways are followed at once, character by character (Thompson, Regular Expression Search
Algorithm, 1968), the preferred ones first (Pike), so that what is found is what ``re`` finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from re import _compiler, _constants, _parser  # type: ignore[attr-defined] # the parser of re itself
from typing import Any

from tenonnx import interruption
from tenonnx.records import NamedTuple

LARGEST = 20_000
"""States at most."""

MOST_REPEATS = 1000
"""The most repeats of anything, repeats of repeats included: as in RE2."""

REMEMBERED = 20_000
"""Steps that are remembered at most."""

OFTEN = 256
"""Characters that are looked at before it is asked whether to stop."""

REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)


class State(NamedTuple):
    """A state of the automaton.

    Attributes:
        kind: ``CHARACTER`` consumes one, ``ASSERTION`` looks at those around, ``EITHER`` goes two
            ways, the first one preferably, and ``ACCEPT`` is the end.
        what: The test of a character; or the assertion.
        ways: The states that follow.
    """

    kind: int
    what: Any
    ways: tuple[int, ...]


CHARACTER, ASSERTION, EITHER, ACCEPT = range(4)


class Characters:
    """Says whether a character is one of those that an element of a pattern stands for."""

    def __init__(self, tree: Any, element: Any, flags: int) -> None:
        single = _parser.SubPattern(tree.state, [element])
        self._match = _compiler.compile(single, flags).match
        self._known: dict[str, bool] = {}

    def __contains__(self, character: str) -> bool:
        found = self._known.get(character)
        if found is None:
            if len(self._known) > REMEMBERED:
                self._known.clear()
            found = self._known[character] = self._match(character) is not None
        return found


class Automaton:
    """A pattern of Python's syntax without references and look-around.

    Raises:
        ValueError: It needs too many states.
    """

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self.states: list[State] = []
        accept = self._add(ACCEPT, None)
        self._start = self._sequence(tree.data, tree.state.flags, accept)
        self._steps: dict[tuple[tuple[int, ...], str, str], tuple[int, ...]] = {}

    def _add(self, kind: int, what: Any, *ways: int) -> int:
        if len(self.states) >= LARGEST:
            raise ValueError(f"it needs more than {LARGEST} states")
        self.states.append(State(kind, what, ways))
        return len(self.states) - 1

    def _sequence(self, elements: Sequence[Any], flags: int, following: int) -> int:
        """Returns the state that elements begin with, of which ``following`` is the next one."""
        for element in reversed(elements):
            following = self._element(element, flags, following)
        return following

    def _element(self, element: Any, flags: int, following: int) -> int:
        code, what = element
        if code is _constants.SUBPATTERN:
            _, more, less, inner = what
            return self._sequence(inner.data, (flags | more) & ~less, following)
        if code is _constants.BRANCH:
            ways = [self._sequence(way.data, flags, following) for way in what[1]]
            return self._either(ways)
        if code in REPEATS:
            return self._repeat(what, flags, following, lazy=code is _constants.MIN_REPEAT)
        if code is _constants.AT:
            return self._add(ASSERTION, (what, bool(flags & re.MULTILINE)), following)
        if code is _constants.ASSERT:  # as of intersections of classes: one character ahead
            ahead = Characters(self._tree, what[1].data[0], flags)
            return self._add(ASSERTION, (ahead, False), following)
        if code in (_constants.ASSERT_NOT, _constants.GROUPREF):
            raise ValueError(f"{code} is not regular")
        return self._add(CHARACTER, Characters(self._tree, element, flags), following)

    def _either(self, ways: Sequence[int]) -> int:
        *others, way = ways
        for other in reversed(others):
            way = self._add(EITHER, None, other, way)
        return way

    def _repeat(self, what: Any, flags: int, following: int, *, lazy: bool) -> int:
        least, most, inner = what
        if most is _constants.MAXREPEAT:
            loop = self._add(EITHER, None)
            body = self._sequence(inner.data, flags, loop)
            self.states[loop] = State(EITHER, None, _ordered(body, following, lazy))
            # x* is (x+)?: where x may be empty, the order of preference is RE2's so.
            once = self._add(EITHER, None, *_ordered(body, following, lazy))
            least, following = (least - 1, body) if least else (0, once)
        else:
            end = following
            for _ in range(most - least):
                body = self._sequence(inner.data, flags, following)
                following = self._add(EITHER, None, *_ordered(body, end, lazy))
        for _ in range(least):
            following = self._sequence(inner.data, flags, following)
        return following

    def _closure(self, state: int, before: str, after: str, seen: set[int]) -> Iterator[int]:
        """Yields the states that consume or accept, the preferred ones first, each once."""
        waiting = [state]
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            kind, what, ways = self.states[state]
            if kind in (CHARACTER, ACCEPT):
                yield state
            elif kind == EITHER or _holds(what, before, after):
                waiting.extend(reversed(ways))

    def fullmatch(self, text: str) -> bool:
        """Says whether all of a text matches."""
        now: tuple[int, ...] = (self._start,)
        before = ""
        for number, after in enumerate(text):
            if not number % OFTEN:
                interruption.check()
            key = now, before, after
            found = self._steps.get(key)
            if found is None:
                if len(self._steps) > REMEMBERED:
                    self._steps.clear()
                found = self._steps[key] = tuple(self._step(now, before, after))
            if not found:
                return False
            now, before = found, after
        return 0 in self._reached(now, before, "")

    def _reached(self, states: Sequence[int], before: str, after: str) -> Iterator[int]:
        seen: set[int] = set()
        for state in states:
            yield from self._closure(state, before, after, seen)

    def _step(self, states: Sequence[int], before: str, after: str) -> Iterator[int]:
        for state in self._reached(states, before, after):
            kind, what, ways = self.states[state]
            if kind == CHARACTER and after in what:
                yield ways[0]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields where matches that are not empty begin and end, from left to right."""
        at = 0
        while at <= len(text) and (found := self._search(text, at)) is not None:
            if found[0] < found[1]:
                yield found
            at = max(found[1], at + (found[1] == at))

    def _search(self, text: str, at: int) -> tuple[int, int] | None:
        """Returns the first match from a place on, of those there the preferred one."""
        best: tuple[int, int] | None = None
        threads: list[tuple[int, int]] = []
        for place in range(at, len(text) + 1):
            if not place % OFTEN:
                interruption.check()
            before, after = text[place - 1 : place] if place else "", text[place : place + 1]
            if best is None:
                threads.append((self._start, place))
            seen: set[int] = set()
            going: list[tuple[int, int]] = []
            for state, start in threads:
                ready = list(self._closure(state, before, after, seen))
                end = ready.index(0) if 0 in ready else len(ready)
                takes = (self.states[one] for one in ready[:end])
                going += ((own.ways[0], start) for own in takes if after and after in own.what)
                if end < len(ready):  # less preferred threads are dropped
                    best = start, place
                    break
            threads = going
            if best is not None and not threads:
                break
        return best


def _ordered(body: int, following: int, lazy: bool) -> tuple[int, int]:
    return (following, body) if lazy else (body, following)


def _holds(assertion: tuple[Any, bool], before: str, after: str) -> bool:
    """Says whether an assertion holds between two characters, of which either may be missing."""
    where, multiline = assertion
    if isinstance(where, Characters):
        return bool(after) and after in where
    if where in (_constants.AT_BOUNDARY, _constants.AT_NON_BOUNDARY):
        boundary = _is_word(before) != _is_word(after)
        return boundary == (where is _constants.AT_BOUNDARY)
    if where in (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING):
        lines = multiline and where is _constants.AT_BEGINNING
        return not before or (lines and before == "\n")
    lines = multiline and where is _constants.AT_END
    return not after or (lines and after == "\n")


def _is_word(character: str) -> bool:
    return bool(character) and character.isascii() and (character.isalnum() or character == "_")


def repeats(elements: Sequence[Any]) -> int:
    """Returns how often repeats of repeats ask for what is inside them, at most."""
    most = 1
    for code, what in elements:
        if code is _constants.SUBPATTERN:
            most = max(most, repeats(what[3].data))
        elif code is _constants.BRANCH:
            most = max(most, *(repeats(way.data) for way in what[1]))
        elif code in REPEATS:
            least, times, inner = what
            times = least if times is _constants.MAXREPEAT else times
            most = max(most, max(1, times) * repeats(inner.data))
    return most


def is_plain(elements: Sequence[Any], *, last: bool) -> bool:
    """Says whether ``re`` takes linear time, too: there is one thing to try out, of characters.

    Args:
        elements: The pattern's.
        last: Whether that must be the last one, as when searching for matches.
    """
    tried = [place for place, (code, _) in enumerate(elements) if code in REPEATS]
    kinds = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.IN, _constants.ANY)
    if any(code not in (*kinds, *REPEATS) for code, _ in elements) or len(tried) > 1:
        return False
    if not tried:
        return bool(elements) or not last
    least, _, inner = elements[tried[0]][1]
    if len(inner.data) != 1 or inner.data[0][0] not in kinds:
        return False
    # After a match that is empty, re looks at the same place again, RE2 at the next one.
    return not last or (tried[0] == len(elements) - 1 and least + len(elements) > 1)
