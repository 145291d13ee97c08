r"""Regular expressions in RE2's syntax, matched in time linear in the text.

https://github.com/google/re2/wiki/Syntax. Patterns that mean the same to Python's ``re``, and that
it matches in linear time, are left to it: google-re2's Python half takes 27 us for a match. All
others need google-re2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

# Ways at most in which ``re`` may try to match a pattern at one place of a text, one repeat
# without a bound aside: 5 ns each. RE2 follows all ways at once.
MAX_WAYS = 256

ATOM = r"""
    [^\\.^$*+?{}()|\[\]]            # a character that stands for itself
  | \\(?:[dDsSwW]|[^\w\s])          # a class, or an escaped sign
  | \.
  | \[\^?+(?:(?!--)[^\\\[\]&~|]|\\(?:[dDswW]|[^\w\s]))+\]
"""
# An element of the patterns that are left to ``re``.
ELEMENT = re.compile(
    rf"(?P<atom>{ATOM})(?P<repeat>[*+?]\??|\{{\d{{1,3}}(?:,\d{{0,3}})?\}}\??)?"
    r"|(?P<assertion>\^|\$|\\[Abz])|(?P<open>\((?:\?:)?(?![?*+]))|(?P<close>\))|(?P<or>\|)",
    re.VERBOSE,
)

# The members of RE2's ``\s``; Python's has ``\v``, too.
SPACE = r"\t\n\f\r "

# Elements that Python writes otherwise.
TRANSLATED = {"$": r"\Z", r"\z": r"\Z", r"\s": f"[{SPACE}]", r"\S": f"[^{SPACE}]"}


class Search:
    """A search for matches of a pattern that are not empty, from left to right."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where the matches begin and end."""
        found = (match.span() for match in self._compiled.finditer(text))
        return [(start, end) for start, end in found if start < end]

    def found(self, text: str) -> list[str]:
        """Return the matches."""
        return [text[start:end] for start, end in self.spans(text)]

    def between(self, text: str) -> list[str]:
        """Return the text before, between and behind the matches."""
        edges = [0, *(edge for span in self.spans(text) for edge in span), len(text)]
        return [text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]


@lru_cache(maxsize=256)
def compile_fullmatch(pattern: str) -> Callable[[str], bool]:
    """Return a function that returns whether all of a text matches a pattern.

    Raises:
        ValueError: The pattern is not RE2's, is too large, or needs google-re2, which is missing.
    """
    fullmatch = _compiled(pattern, searching=False).fullmatch
    return lambda text: fullmatch(text) is not None


@lru_cache(maxsize=256)
def compile_search(pattern: str) -> Search:
    """Compile a pattern to search for.

    Raises:
        ValueError: The pattern is not RE2's, is too large, or needs google-re2, which is missing.
    """
    return Search(_compiled(pattern, searching=True))


@cache
def google_re2() -> Any:
    """Return google-re2's module; None if it is not installed."""
    try:
        import re2
    except ImportError:
        return None
    return re2 if hasattr(re2, "Options") else None


def _compiled(pattern: str, *, searching: bool) -> Any:
    scan = _Scan(searching)
    if scan.accepts(pattern):
        try:
            return re.compile("".join(scan.parts), re.ASCII)
        except (re.error, RecursionError):  # a range from z to a: google-re2 says so
            pass
    if google_re2() is None:
        raise ValueError(
            f"the pattern {pattern!r} needs google-re2, as Python's re may take more than linear "
            "time for it or reads it differently; pip install 'tenonnx[re2]'"
        )
    return _compile_google(pattern)


def _compile_google(pattern: str) -> Any:
    library = google_re2()
    options = library.Options()
    options.log_errors = False
    try:
        return library.compile(pattern, options)
    except library.error as error:
        why = error.args[0].decode(errors="replace") if error.args else "it is refused"
        raise ValueError(f"expected RE2's syntax, found {pattern!r}: {why}") from error


class _Scan:
    """Translates a pattern for ``re``, if that is left to it.

    What is repeated is one character. At most one repeat in each alternative has no bound. A
    search starts at each place, so there that repeat is the last element of its alternative, as
    what follows it could fail at each of its lengths; and no alternative matches nothing, behind
    which ``re`` and RE2 go on at different places.
    """

    def __init__(self, searching: bool) -> None:
        self.parts: list[str] = []
        self._searching = searching
        self._ways = 1
        self._alternatives = [1]  # of each open group, the whole pattern first
        self._start()

    def _start(self) -> None:
        """Begin an alternative of the whole pattern."""
        self._repeats_without_bound = 0
        self._consumes = False

    def accepts(self, pattern: str) -> bool:
        """Return whether ``re`` may match the pattern, then ``parts`` is its text for ``re``."""
        at = 0
        while at < len(pattern):
            element = ELEMENT.match(pattern, at)
            if element is None or not self._take(element):
                return False
            at = element.end()
        return len(self._alternatives) == 1 and self._close() and self._ends()

    def _take(self, element: re.Match[str]) -> bool:
        kind, text = element.lastgroup, element.group()
        if kind in ("atom", "repeat"):
            return self._atom(element)
        self.parts.append(TRANSLATED.get(text, "(?:" if kind == "open" else text))
        if kind == "assertion":
            return not (self._searching and self._repeats_without_bound)
        if kind == "open":
            self._alternatives.append(1)
            return True
        if kind == "close":
            return len(self._alternatives) > 1 and self._close()
        self._alternatives[-1] += 1
        return len(self._alternatives) > 1 or self._ends()

    def _atom(self, element: re.Match[str]) -> bool:
        self.parts += (_translated(element["atom"]), element["repeat"] or "")
        least, most = _bounds(element["repeat"])
        if self._searching and self._repeats_without_bound:
            return False
        at_top = len(self._alternatives) == 1
        self._consumes |= least > 0 and at_top
        if most is None:
            self._repeats_without_bound += 1
            return self._repeats_without_bound == 1 and (at_top or not self._searching)
        self._ways *= most - least + 1
        return least <= most and self._ways <= MAX_WAYS

    def _close(self) -> bool:
        self._ways *= self._alternatives.pop()
        return self._ways <= MAX_WAYS

    def _ends(self) -> bool:
        """End an alternative of the whole pattern; say whether it may be left to ``re``."""
        fits = self._consumes or not self._searching
        self._start()
        return fits


def _translated(atom: str) -> str:
    if atom.startswith("["):
        return re.sub(r"\\(.)", lambda escape: SPACE if escape[1] == "s" else escape[0], atom)
    return TRANSLATED.get(atom, atom)


def _bounds(repeat: str | None) -> tuple[int, int | None]:
    """Return the least and the greatest number of repeats."""
    if repeat is None:
        return 1, 1
    if repeat[0] != "{":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[repeat[0]]
    least, comma, most = repeat.rstrip("?")[1:-1].partition(",")
    return int(least), int(most) if most else (None if comma else int(least))
