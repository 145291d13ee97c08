"""String operators; they run on the host. Strings are ``str`` in numpy object arrays."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.graph.shape_checks import broadcast_shapes
from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_bytes
from tenonnx_array.re2 import compile_fullmatch

table = OperatorTable()
op = table.op


@op("StringConcat", since=20, host="all")
def string_concat(_xp: Namespace, x: Array, y: Array) -> Array:
    x, y = np.asarray(x, object), np.asarray(y, object)
    longest = sum(max(map(len, array.flat), default=0) for array in (x, y))
    count = math.prod(broadcast_shapes(x.shape, y.shape))
    check_bytes(count * longest, f"{count} strings of up to {longest} characters")
    return np.asarray(x + y, object)


@op("StringSplit", since=20, host="all", multiple=True)
def string_split(
    _xp: Namespace, x: Array, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Array, Array]:
    """Split each string; returns the parts, padded with empty strings on a new axis, and counts.

    Without a delimiter runs of whitespace separate, and those at the ends are dropped.
    """
    x = np.asarray(x, object)
    limit = -1 if maxsplit is None else maxsplit
    strings = x.reshape(-1).tolist()
    if delimiter:
        rows = [s.split(delimiter, limit) for s in strings]
    else:
        rows = [s.strip().split(None, limit) for s in strings]
    counts = np.array(list(map(len, rows)), np.int64)
    parts = np.full((len(strings), counts.max(initial=0)), "", object)
    found = np.array(list(itertools.chain.from_iterable(rows)), dtype=object)
    parts[np.arange(parts.shape[1]) < counts[:, None]] = found
    return parts.reshape((*x.shape, parts.shape[1])), counts.reshape(x.shape)


@op("StringNormalizer", since=10, host="all")
def string_normalizer(
    _xp: Namespace,
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "en_US",
    stopwords: Sequence[str] = (),
) -> Array:
    """Remove stopwords, then change case by Unicode's rules, whatever locales the machine has.

    ``x`` has shape [C] or [1, C]; if no word is left, the result is one empty string.
    """
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError(f"expected shape [C] or [1, C], found {list(x.shape)}")
    normalized = _normalizer(case_change_action, bool(is_case_sensitive), locale, tuple(stopwords))
    kept = normalized(x.reshape(-1).tolist())
    return np.array(kept or [""], dtype=object).reshape((-1,) if x.ndim == 1 else (1, -1))


@functools.lru_cache(maxsize=64)
def _normalizer(
    action: str, is_case_sensitive: bool, locale: str, stopwords: tuple[str, ...]
) -> Callable[[list[str]], list[str]]:
    lower, upper = _case_functions(locale)
    actions: dict[str, Callable[[str], str]] = {"LOWER": lower, "UPPER": upper, "NONE": str}
    if action not in actions:
        raise ValueError(f"expected LOWER, UPPER or NONE, found {action}")
    key: Callable[[str], str] = str if is_case_sensitive else lower
    change, stopped = actions[action], {key(word) for word in stopwords}
    if not stopped:
        return lambda words: [*map(change, words)]
    if key is change:
        return lambda words: [word for word in map(change, words) if word not in stopped]
    return lambda words: [change(word) for word in words if key(word) not in stopped]


def _case_functions(locale: str) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return lower and upper; in Turkish and Azerbaijani the letter i keeps its dot, or lack."""
    if locale[:2].lower() not in ("tr", "az"):
        return str.lower, str.upper
    return (
        lambda s: s.replace("İ", "i").replace("I", "ı").lower(),
        lambda s: s.replace("i", "İ").upper(),
    )


@op("RegexFullMatch", since=20, host="all")
def regex_full_match(_xp: Namespace, x: Array, *, pattern: str) -> Array:
    """Return for each string whether all of it matches ``pattern``, in RE2's syntax."""
    match = compile_fullmatch(pattern)
    strings: list[Any] = np.asarray(x, object).reshape(-1).tolist()
    return np.array([*map(match, strings)], bool).reshape(np.shape(x))
