"""Arrays that never change: who has been given one may rely on its elements."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

_known: dict[int, weakref.ref[Any]] = {}


def fix(result: Any) -> np.ndarray[Any, Any]:
    """Returns a copy of an array that nobody writes to."""
    array = np.array(result)
    array.flags.writeable = False
    number = id(array)
    _known[number] = weakref.ref(array, lambda _: _known.pop(number, None))
    return array


def is_fixed(array: Any) -> bool:
    """Says whether an array is one that ``fix`` returned."""
    known = _known.get(id(array))
    return known is not None and known() is array
