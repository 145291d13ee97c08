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
    if x.dtype in FLOATS:
        texts = _decimals(x.astype(accumulator(x.dtype), copy=False).ravel())
    else:
        whole = x.astype(np.int8) if x.dtype == np.bool_ else x
        texts = list(map(str, whole.ravel().tolist()))
    strings = np.empty(x.size, object)
    strings[:] = texts
    return strings.reshape(x.shape)


def _decimals(x: np.ndarray[Any, Any]) -> list[str]:
    texts: list[str] = x.astype("U32").tolist()
    for place, text in enumerate(texts):
        if text.endswith(".0"):
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
