r"""RE2's regular expressions: by google-re2 where it is installed, else by an automaton of its own.

https://github.com/google/re2/wiki/Syntax. The syntax is translated to Python's: what Python adds
(look-around, backreferences, possessive repeats) is refused; what only RE2 has is rewritten, save
scripts in ``\p{...}`` and the flag U. Matching takes time linear in the text either way.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import groupby
from re import _parser  # type: ignore[attr-defined] # what it parses to, no other module says
from typing import Any

from tenonnx_array.automaton import MOST_REPEATS, Automaton, is_plain, repeats

PERL_CLASSES = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}

POSIX_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}

_REPEAT = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??")
_FLAGS = re.compile(r"\(\?([ims]*)(?:-([ims]+))?([:)])")
_GROUP = re.compile(r"\((?:\?P?<\w+>|(?!\?))")
_NUMERIC = re.compile(r"x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|([0-7]{2,3}|0)")
_POSIX = re.compile(r"\[:(\^?)(\w+):\]")
_CATEGORY = re.compile(r"[pP](?:\{(\^?)(\w+)\}|(\w))")
_CONTROLS = dict(zip("afnrtv", "\a\f\n\r\t\v", strict=True))


class Pattern(ABC):
    """A compiled pattern."""

    @abstractmethod
    def fullmatch(self, text: str) -> bool:
        """Say whether all of a text matches."""

    @abstractmethod
    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where matches that are not empty begin and end, from left to right."""

    def found(self, text: str) -> list[str]:
        """Return the matches that are not empty."""
        return [text[start:end] for start, end in self.spans(text)]

    def between(self, text: str) -> list[str]:
        """Return what lies before, between and behind these."""
        edges = [0, *(edge for span in self.spans(text) for edge in span), len(text)]
        return [text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]


@lru_cache(maxsize=256)
def compile_re2(pattern: str) -> Pattern:
    """Compile a pattern in RE2's syntax.

    Raises:
        ValueError: It is not RE2's, or too large.
    """
    if google_re2() is None:
        return compile_own(pattern)
    theirs = compile_google(pattern)
    try:
        own = compile_own(pattern)
    except ValueError:
        return theirs
    # Its Python half looks at each match for longer than re takes to find it.
    return own if isinstance(own, _Plain) else theirs


@cache
def google_re2() -> Any:
    """Return google-re2's module; None if it is not installed."""
    try:
        import re2
    except ImportError:
        return None
    return re2 if hasattr(re2, "Options") else None


def compile_google(pattern: str) -> Pattern:
    """Compile a pattern by google-re2.

    Raises:
        ValueError: It is not RE2's, or too large.
    """
    return _Google(google_re2(), pattern)


class _Google(Pattern):
    def __init__(self, library: Any, pattern: str) -> None:
        options = library.Options()
        options.log_errors = False
        try:
            self._pattern = library.compile(pattern, options)
        except library.error as error:
            why = error.args[0].decode(errors="replace") if error.args else "it is refused"
            raise ValueError(f"expected RE2's syntax, found {pattern!r}: {why}") from error

    def fullmatch(self, text: str) -> bool:
        return self._pattern.fullmatch(text) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        found = (match.span() for match in self._pattern.finditer(text))
        return ((start, end) for start, end in found if start < end)


def compile_own(pattern: str) -> Pattern:
    """Compile a pattern without google-re2.

    Raises:
        ValueError: It is not RE2's, uses what is not known here, or is too large.
    """
    translated = _Translator(pattern).translate()
    try:
        compiled, tree = re.compile(translated), _parser.parse(translated)
        if repeats(tree.data) > MOST_REPEATS:
            raise ValueError(f"it repeats something more than {MOST_REPEATS} times")
        return _Plain(compiled) if is_plain(tree.data, last=True) else _Own(compiled, tree)
    except (re.error, ValueError, RecursionError, OverflowError) as e:
        why = "it nests too deeply" if isinstance(e, RecursionError) else e
        raise ValueError(f"expected RE2's syntax, found {pattern!r}: {why}") from e


class _Plain(Pattern):
    """One that takes ``re`` linear time, has no groups, and matches nothing empty."""

    def __init__(self, compiled: re.Pattern[str]) -> None:
        self._compiled = compiled

    def fullmatch(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        return (match.span() for match in self._compiled.finditer(text))

    def found(self, text: str) -> list[str]:
        return self._compiled.findall(text)

    def between(self, text: str) -> list[str]:
        return self._compiled.split(text)


class _Own(Pattern):
    def __init__(self, compiled: re.Pattern[str], tree: Any) -> None:
        self._automaton = Automaton(tree)
        self._compiled = compiled if is_plain(tree.data, last=False) else None

    def fullmatch(self, text: str) -> bool:
        if self._compiled is not None:
            return self._compiled.fullmatch(text) is not None
        return self._automaton.fullmatch(text)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        return self._automaton.spans(text)


class _Translator:
    """One pass over a pattern.

    RE2 lets ``(?i)`` stand anywhere and hold to the end of the group, alternatives included.
    Python does not: here it opens a group, which is closed and opened again around each ``|``.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.multiline = False
        self.opened: list[str] = []
        self.outer: list[tuple[list[str], bool]] = []

    def translate(self) -> str:
        parts = []
        while self.at < len(self.pattern):
            parts.append(self._next())
        if self.outer:
            raise self._error("missing )")
        return "".join(parts) + ")" * len(self.opened)

    def _next(self) -> str:
        c = self.pattern[self.at]
        if repeat := _REPEAT.match(self.pattern, self.at):
            return self._repeat(repeat)
        if c == "(":
            return self._open()
        if c == "[":
            return self._bracket()
        if c == "\\":
            return self._escape()
        self.at += 1
        if c == ")":
            return self._close()
        if c == "|":
            return ")" * len(self.opened) + "|" + "".join(self.opened)
        if c == "$":
            return "$" if self.multiline else r"\Z"
        return c if c in "^." else re.escape(c)

    def _repeat(self, repeat: re.Match[str]) -> str:
        self.at = repeat.end()
        if _REPEAT.match(self.pattern, self.at):
            raise self._error("a repeat of a repeat")
        return repeat.group()

    def _open(self) -> str:
        flags = _FLAGS.match(self.pattern, self.at)
        if flags is None:
            return self._open_plain()
        self.at = flags.end()
        on, off, end = flags.group(1), flags.group(2) or "", flags.group(3)
        inside = (self.multiline or "m" in on) and "m" not in off
        scope = f"(?{on}{'-' + off if off else ''}:"
        if end == ":":
            self._enter()
        else:
            self.opened.append(scope)
        self.multiline = inside
        return scope

    def _open_plain(self) -> str:
        group = _GROUP.match(self.pattern, self.at)
        if group is None:
            raise self._error(f"no group starts with {self.pattern[self.at : self.at + 3]}")
        self.at = group.end()
        self._enter()
        return "(?:"

    def _enter(self) -> None:
        self.outer.append((self.opened, self.multiline))
        self.opened = []

    def _close(self) -> str:
        if not self.outer:
            raise self._error("unexpected )")
        ends = ")" * (len(self.opened) + 1)
        self.opened, self.multiline = self.outer.pop()
        return ends

    def _escape(self) -> str:
        if self.pattern.startswith(r"\Q", self.at):
            text, _, _ = self.pattern[self.at + 2 :].partition(r"\E")
            self.at = min(len(self.pattern), self.at + 4 + len(text))
            return re.escape(text)
        following = self.pattern[self.at + 1 : self.at + 2]
        if following in ("A", "b", "B", "z"):
            self.at += 2
            return {"A": r"\A", "z": r"\Z"}.get(following, f"(?a:\\{following})")
        members, negated = self._item()
        return f"[{'^' if negated else ''}{members}]"

    def _item(self) -> tuple[str, bool]:
        """Read an escape that may also stand in brackets; returns class members, and if negated."""
        self.at += 1
        rest = self.at
        c = self.pattern[rest : rest + 1]
        if numeric := _NUMERIC.match(self.pattern, rest):
            self.at = numeric.end()
            digits, base = (numeric[3], 8) if numeric[3] else (numeric[1] or numeric[2], 16)
            return re.escape(chr(int(digits, base))), False
        if category := _CATEGORY.match(self.pattern, rest):
            self.at = category.end()
            negated = (c == "P") != (category[1] == "^")
            return self._category(category[2] or category[3]), negated
        self.at += 1
        if c and c.lower() in PERL_CLASSES:
            return PERL_CLASSES[c.lower()], c.isupper()
        if c in _CONTROLS:
            return re.escape(_CONTROLS[c]), False
        if not c or c.isalnum():
            raise self._error(f"unknown escape \\{c}")
        return re.escape(c), False

    def _bracket(self) -> str:
        negated = self.pattern.startswith("[^", self.at)
        self.at += 2 if negated else 1
        parts: list[str] = []
        inverted: list[str] = []
        first = True
        while first or not self.pattern.startswith("]", self.at):
            members, opposite = self._member()
            (inverted if opposite else parts).append(members)
            first = False
        self.at += 1
        return _union("".join(parts), inverted, negated)

    def _member(self) -> tuple[str, bool]:
        """Read one character, range or class inside brackets."""
        if posix := _POSIX.match(self.pattern, self.at):
            if posix[2] not in POSIX_CLASSES:
                raise self._error(f"unknown class {posix.group()}")
            self.at = posix.end()
            return POSIX_CLASSES[posix[2]], bool(posix[1])
        low, opposite = self._single()
        dash = self.pattern[self.at : self.at + 1] == "-"
        if not dash or self.pattern[self.at + 1 : self.at + 2] in ("]", "") or _is_class(low):
            return low, opposite
        self.at += 1
        high, _ = self._single()
        if _is_class(high):
            raise self._error("a range that ends in a class")
        return f"{low}-{high}", False

    def _single(self) -> tuple[str, bool]:
        if self.at >= len(self.pattern):
            raise self._error("missing ]")
        if self.pattern[self.at] == "\\":
            return self._item()
        self.at += 1
        return re.escape(self.pattern[self.at - 1]), False

    def _category(self, name: str) -> str:
        members = "\\x00-\U0010ffff" if name == "Any" else category_members(name)
        if not members:
            raise self._error(f"the Unicode script or category {name} is not known here")
        return members

    def _error(self, reason: str) -> ValueError:
        return ValueError(
            f"expected RE2's syntax, found {self.pattern!r}: {reason}, at character {self.at}"
        )


def _is_class(members: str) -> bool:
    return len(members.removeprefix("\\")) > 1


def _union(members: str, inverted: list[str], negated: bool) -> str:
    """Join classes of which some are complements, which Python cannot nest in brackets."""
    if not inverted:
        return f"[{'^' if negated else ''}{members}]"
    if negated:
        ahead = "".join(f"(?=[{m}])" for m in inverted)
        return f"(?:{ahead}{f'[^{members}]' if members else '(?s:.)'})"
    choices = [f"[{members}]"] * bool(members) + [f"[^{m}]" for m in inverted]
    return f"(?:{'|'.join(choices)})"


@lru_cache(maxsize=32)
def category_members(name: str) -> str:
    """Return the members of a Unicode general category (Lu, or L for all letters), as ranges."""
    codes = [c for c in range(0x110000) if unicodedata.category(chr(c)).startswith(name)]
    runs = (list(run) for _, run in groupby(enumerate(codes), lambda pair: pair[1] - pair[0]))
    return "".join(f"{re.escape(chr(run[0][1]))}-{re.escape(chr(run[-1][1]))}" for run in runs)
