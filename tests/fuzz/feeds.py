"""Inputs of a session: plausible values, and hostile ones."""

from __future__ import annotations

import random
import re
from typing import Any

import ml_dtypes
import numpy as np

from fuzz.corpus import Feeds
from fuzz.hostile import DTYPES, SIZES, WORDS, awkward, filled, spoiled

MAX_ELEMENTS = 1 << 16
NAMES = {"float": "f4", "double": "f8", "float16": "f2", "string": "O", "bool": "?"}
NAMES |= {"complex64": "c8", "complex128": "c16"}


def dtype_of(kind: str) -> Any:
    """Return the dtype of ``tensor(float)``, also inside of a sequence or an optional."""
    name = re.sub(r".*\(", "", kind).rstrip(")")
    try:
        return np.dtype(NAMES.get(name) or getattr(ml_dtypes, name, name))
    except TypeError:
        return np.dtype("f4")


def rounds(
    arguments: list[Any], feeds: Feeds, number: int, *, good: int, hostile: int
) -> list[Feeds]:
    """Return a session's inputs: the seed's, then hostile ones, then the seed's again.

    Args:
        arguments: The session's inputs, as it describes them.
        feeds: What the seed was run on.
        number: Of the case.
        good: How many runs are as the seed's were.
        hostile: How many are not.
    """
    usual = {each.name: _usual(each, feeds, random.Random(f"{number}:usual")) for each in arguments}
    made = [usual] * good
    for count in range(hostile):
        draw = random.Random(f"{number}:{count}")
        given = dict(usual)
        names = sorted(given)
        for name in draw.sample(names, min(len(names), draw.choice([1, 1, 2, 9]))):
            argument = next(each for each in arguments if each.name == name)
            given[name] = _hostile(argument, given[name], draw)
        if draw.random() < 0.03:
            given[draw.choice(WORDS)] = np.zeros(1)
        made.append(given)
    return [*made, usual] if hostile and good > 1 else made


def _usual(argument: Any, feeds: Feeds, draw: random.Random) -> Any:
    given = feeds.get(argument.name)
    if given is not None and not isinstance(given, np.ndarray):
        return given
    dtype, shape = dtype_of(argument.type), argument.shape
    fits = given is not None and given.dtype == dtype and len(given.shape) == len(shape)
    if fits and all(
        not isinstance(d, int) or d == g for d, g in zip(shape, given.shape, strict=True)
    ):
        return given
    if given is not None and given.dtype == dtype and not shape:
        return given  # of no rank that the model says
    made = filled(dtype, _shape(shape, draw), draw)
    if argument.type.startswith(("seq(", "optional(seq(")):
        return [made, made]
    if argument.type.startswith("map("):
        return {draw.choice([1, "a"]): 1.0}
    return made


def _shape(dims: list[Any], draw: random.Random) -> tuple[int, ...]:
    sizes = [d if isinstance(d, int) and d >= 0 else draw.choice(SIZES) for d in dims[:32]]
    # A 0 does not make a shape small: numpy refuses what is too large without it.
    while sizes and np.prod([d or 1 for d in sizes], dtype=np.float64) > MAX_ELEMENTS:
        largest = max(sizes)
        sizes[sizes.index(largest)] = 2 if largest > 2 else 1
    return tuple(sizes)


def _hostile(argument: Any, given: Any, draw: random.Random) -> Any:
    if not isinstance(given, np.ndarray):
        if isinstance(given, list) and given and draw.random() < 0.8:
            return draw.choice([[], given * 3, given[:-1], [_array(argument, given[0], draw)]])
        return draw.choice([None, [], {}, 3, "x", [None], np.zeros(2), given])
    return _array(argument, given, draw)


def _array(argument: Any, given: Any, draw: random.Random) -> Any:
    way = draw.choice(["values", "values", "values", "values", "shape", "shape", "lie", "dtype"])
    array = np.asarray(given)
    if way == "values":
        return spoiled(array, draw)
    if way == "lie":
        return awkward(array, draw)
    if way == "dtype" and draw.random() < 0.5:
        return draw.choice([None, 3, "x", [], [[1], [2, 3]], 2**70, object()])
    if way == "dtype":
        shape = array.shape if array.size < MAX_ELEMENTS else ()
        return filled(draw.choice(DTYPES), shape, draw)
    dims: list[Any] = list(argument.shape) or [None] * draw.choice([array.ndim, 0, 1, 2, 3, 5])
    shape = [
        g if i < array.ndim and draw.random() < 0.5 else None for i, g in enumerate(array.shape)
    ]
    free = [d if isinstance(d, int) else s for d, s in zip(dims, shape, strict=False)]
    return filled(array.dtype, _shape(free + dims[len(free) :], draw), draw)
