"""``Cast`` between numbers and strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_array.dtypes import FLOATS, INTEGERS, accumulator


def to_strings(x: Any) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Return a host array's numbers as strings.

    Floats are the shortest decimals that read back as the same number (as float32 if they are
    smaller), never with an exponent; infinities are ``INF`` and ``-INF``; booleans ``1`` and ``0``.
    """
    x = np.asarray(x)
    if x.dtype not in FLOATS:
        return _of_integers(x.astype(np.int8) if x.dtype == np.bool_ else x)
    return _objects(_decimals(x.astype(accumulator(x.dtype), copy=False).ravel())).reshape(x.shape)


def _objects(texts: list[str]) -> np.ndarray[Any, np.dtype[np.object_]]:
    strings = np.empty(len(texts), object)
    strings[:] = texts
    return strings


def _of_integers(x: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Return integers as strings; those between the least and the greatest, if that is less."""
    if x.size and x.dtype.kind in "iu":
        low, high = x.min(), x.max()
        if int(high) - int(low) < x.size:
            every = _objects(list(map(str, range(int(low), int(high) + 1))))
            places = x.ravel().astype(np.int64) - low.astype(np.int64)
            found: np.ndarray[Any, Any] = every[places]
            return found.reshape(x.shape)
    return _objects(list(map(str, x.ravel().tolist()))).reshape(x.shape)


def _decimals(x: np.ndarray[Any, Any]) -> list[str]:
    # Python's of float64 are numpy's, in half the time.
    is_double = x.dtype == np.float64
    texts: list[str] = list(map(repr, x.tolist())) if is_double else x.astype("U32").tolist()
    for place, text in enumerate(texts):
        if text[-2:] == ".0":
            texts[place] = text[:-2]
        elif "e" in text or text[-1] in "nf":
            texts[place] = _decimal(x[place])
    return texts


def _decimal(number: Any) -> str:
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "INF" if number > 0 else "-INF"
    return np.format_float_positional(number, trim="-")


def from_strings(strings: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the numbers that strings spell, whose integers wrap around and booleans are not 0.

    Raises:
        ValueError: A string is no number, or an infinite one where an integer is wanted.
    """
    strings = np.asarray(strings, object)
    given = strings.ravel().tolist()
    read = _integer if dtype in INTEGERS else float
    try:
        # Numerals that Python reads too: 1_000, and the digits of all scripts.
        if any("_" in string or not string.isascii() for string in given):
            raise ValueError("digits are 0 to 9, and nothing is between them")
        numbers = [read(string) for string in given]
    except (ValueError, OverflowError) as e:
        raise ValueError(f"expected strings that spell numbers of dtype {dtype}: {e}") from e
    # Two's complement in 64 bits, of which every narrower integer keeps the low ones.
    wide = np.uint64 if dtype in INTEGERS else np.float64
    return np.array(numbers, wide).astype(dtype).reshape(strings.shape)


def _integer(string: str) -> int:
    try:
        number = int(string)
    except ValueError:
        number = int(float(string))
    return number & 0xFFFF_FFFF_FFFF_FFFF
