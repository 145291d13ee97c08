"""A ufunc of numpy's, by a library that follows the array API standard."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_array.standard.array import REFUSALS, StandardArray

if TYPE_CHECKING:
    from tenonnx_array.standard.namespace import StandardNamespace

# The standard's names of functions, where they are not numpy's.
STANDARD_NAMES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "bitwise_not": "bitwise_invert",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
}

Kind = np.dtype[Any] | type


class Elementwise:
    """A function of elements, in the types that numpy would compute in.

    Args:
        xp: The namespace.
        theirs: numpy's function.
    """

    def __init__(self, xp: StandardNamespace, theirs: np.ufunc) -> None:
        self.xp, self.theirs = xp, theirs
        name = STANDARD_NAMES.get(theirs.__name__, theirs.__name__)
        self.own: Any = getattr(xp.library, name, None)
        self.types = functools.cache(self._types)

    def __call__(self, *given: Any, out: Any = None, **named: Any) -> Any:
        """Return the result, in ``out`` if that is given."""
        types = None if named or self.own is None else self.types(*map(_kind, given))
        made = None if types is None else self._made(given, types)
        if made is None:
            made = self.xp.on_host(self.theirs.__name__, self.theirs, *given, **named)
        if out is None:
            return made
        out[...] = made
        return out

    def _made(self, given: Any, types: tuple[np.dtype[Any], ...]) -> StandardArray | None:
        *wanted, result = types
        native = self.xp.native
        arrays = [native(value, dtype) for value, dtype in zip(given, wanted, strict=True)]
        try:
            return StandardArray(self.xp, self.xp.cast(self.own(*arrays), result))
        except REFUSALS:
            return None

    def at(self, array: StandardArray, index: Any, value: Any) -> None:
        """Apply it in place, an element as often as it is named."""
        whole = np.array(array.numpy())
        self.xp.on_host(f"{self.theirs.__name__}.at", self.theirs.at, whole, index, value)
        array[...] = whole

    def _types(self, *kinds: Kind) -> tuple[np.dtype[Any], ...] | None:
        """Return the types of the inputs and of the result; ``None`` if the library lacks one."""
        found: tuple[np.dtype[Any], ...]
        found = self.theirs.resolve_dtypes((*kinds, *(None,) * self.theirs.nout))
        return found if self.theirs.nout == 1 and all(d in self.xp.own for d in found) else None


def _kind(value: Any) -> Kind:
    """Return the dtype of an array, or the type of a number of Python's, which adapts."""
    if isinstance(value, StandardArray | np.ndarray | np.generic):
        return value.dtype
    if isinstance(value, bool) or not isinstance(value, int | float | complex):
        return np.asarray(value).dtype
    return type(value)
