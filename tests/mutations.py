"""Arrays of other shapes than an operator takes, and the words of libraries that trip over them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

OF_LIBRARIES = re.compile(
    r"broadcast together|reshape array|core dimension|ufunc|Key must be|could not be broadcast"
    r"|out of bounds for axis|not enough values|object has no"
)
"""Messages of numpy and Python that name no operand."""


def mutated(x: np.ndarray[Any, Any], mutation: str) -> np.ndarray[Any, Any]:
    """``+1@0`` is one longer along axis 0, ``=1@0`` has one element there, ..."""
    if "@" in mutation:
        kind, axis = mutation.split("@")
        if kind == "=1":
            return np.take(x, [0], int(axis))
        return np.concatenate([x, np.take(x, [-1], int(axis))], int(axis))
    changes = {"drop": lambda: np.asarray(x[0]), "T": lambda: np.ascontiguousarray(x.T)}
    changes |= {"new": lambda: x[None], "newlast": lambda: x[..., None]}
    return changes[mutation]()
