"""numpy's names over a library that follows the array API standard."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenonnx.operators import Namespace
from tenonnx.provider import Device
from tenonnx_array.dtypes import every_dtype
from tenonnx_array.standard.array import REFUSALS, StandardArray
from tenonnx_array.standard.elementwise import Elementwise
from tenonnx_array.standard.functions import SAME, STANDARD_FUNCTIONS

log = logging.getLogger("tenonnx")


def dtype_of(library: Namespace, dtype: np.dtype[Any]) -> Any:
    """Return the library's dtype for one of numpy's; ``None`` if it has none."""
    own = getattr(library, dtype.name, None)
    if own is None and dtype == np.bool_:
        own = getattr(library, "bool_", None)
    try:
        return None if own is None else np.dtype(own)  # a library may call numpy's its own
    except TypeError:
        return own


class StandardNamespace:
    """The operator table's replacement for numpy.

    dtypes are numpy's, and so is promotion. numpy computes functions that the library lacks, on the
    host.

    Args:
        library: The namespace with the standard's names.
        device: Where its arrays live.
        placed: Keywords with which the library's functions create arrays there.

    Attributes:
        own: The library's dtypes by numpy's.
        numpys: numpy's dtypes by the library's.
        by_numpy: How often numpy computed something, by the function's name.
    """

    def __init__(
        self,
        library: Namespace,
        device: Device,
        placed: Mapping[str, Any] | None = None,
    ) -> None:
        self.library, self.device, self.placed = library, device, dict(placed or {})
        found = {dtype: dtype_of(library, dtype) for dtype in every_dtype()}
        self.own = {dtype: own for dtype, own in found.items() if own is not None}
        self.numpys = {own: dtype for dtype, own in self.own.items()}
        self.by_numpy: Counter[str] = Counter()

    @functools.cached_property
    def has_views(self) -> bool:
        """Whether writing to a part of an array writes to the array."""
        whole = self.library.zeros((2,), dtype=self.own[np.dtype(np.float32)], **self.placed)
        try:
            whole[:1][...] = 1
        except REFUSALS:
            return False
        return bool(float(whole[0]))

    def __getattr__(self, name: str) -> Any:
        found = self._find(name)
        setattr(self, name, found)
        return found

    def _find(self, name: str) -> Any:
        if name in STANDARD_FUNCTIONS:
            return functools.partial(STANDARD_FUNCTIONS[name], self)
        theirs = getattr(np, name)
        if isinstance(theirs, np.ufunc):
            return Elementwise(self, theirs)
        if isinstance(theirs, type) or not callable(theirs):
            extension = name in ("fft", "linalg")
            return Extension(self, name) if extension else theirs
        return self.function(name, theirs, self.library)

    def elementwise(self, name: object) -> Callable[..., Any] | None:
        """Return the library's own function that is one of numpy's ufuncs, if it has it.

        Operators of ONNX take and return one type of elements, so promotion is of no concern.
        """
        found = getattr(self, name) if isinstance(name, str) else None
        return found.own if isinstance(found, Elementwise) else None

    def function(
        self, name: str, theirs: Callable[..., Any], library: Namespace | None
    ) -> Callable[..., Any]:
        """Return the library's function that means the same as numpy's, or else numpy's."""
        own = getattr(library, name, None) if name in SAME else None
        if own is None:
            return functools.partial(self.on_host, name, theirs)
        return functools.partial(self._by_own, own, name, theirs)

    def _by_own(
        self,
        own: Callable[..., Any],
        name: str,
        theirs: Callable[..., Any],
        *given: Any,
        **named: Any,
    ) -> Any:
        try:
            keywords = {key: self.native(value) for key, value in named.items()}
            return self.wrapped(own(*map(self.native, given), **keywords))
        except REFUSALS:
            return self.on_host(name, theirs, *given, **named)

    def on_host(self, name: str, theirs: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Have numpy compute what the library cannot."""
        if not self.by_numpy[name]:
            log.info("%s has no %s of these arrays: numpy computes it", self.library.__name__, name)
        self.by_numpy[name] += 1
        named = {key: self.host(value) for key, value in named.items()}
        return self.uploaded(theirs(*map(self.host, given), **named))

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return the library's array with elements of one of numpy's types."""
        if self.numpys[array.dtype] == dtype:
            return array
        return self.library.astype(array, self.own[dtype])

    def native(self, value: Any, dtype: np.dtype[Any] | None = None) -> Any:
        """Return the library's array for an array, of a dtype if one is given."""
        if isinstance(value, StandardArray):
            return value.array if dtype is None else self.cast(value.array, dtype)
        if isinstance(value, np.ndarray | np.generic) or dtype is not None:
            return self.device.upload(np.asarray(value, dtype))
        return type(value)(map(self.native, value)) if isinstance(value, list | tuple) else value

    def wrapped(self, value: Any) -> Any:
        """Return what is an array of the library's in a value as kernels take it."""
        if isinstance(value, list | tuple):
            return type(value)(map(self.wrapped, value))
        foreign = value is None or isinstance(value, np.ndarray | np.generic | int | float | str)
        return value if foreign else StandardArray(self, value)

    def unwrapped(self, value: Any) -> Any:
        """Return a result without the wrappers of ``wrapped``; numpy's arrays stay as they are."""
        if isinstance(value, StandardArray):
            return value.array
        return type(value)(map(self.unwrapped, value)) if isinstance(value, list | tuple) else value

    def host(self, value: Any) -> Any:
        """Return what is an array of the library's in a value as numpy's."""
        if isinstance(value, StandardArray):
            return value.numpy()
        return type(value)(map(self.host, value)) if isinstance(value, list | tuple) else value

    def uploaded(self, value: Any) -> Any:
        """Return what is an array of numpy's in a value as kernels take it."""
        if isinstance(value, np.ndarray | np.generic):
            return StandardArray(self, self.device.upload(np.asarray(value)))
        return tuple(map(self.uploaded, value)) if isinstance(value, list | tuple) else value


class Extension:
    """``fft`` or ``linalg``, which a library may have."""

    def __init__(self, xp: StandardNamespace, name: str) -> None:
        self.xp, self.name = xp, name

    def __getattr__(self, name: str) -> Any:
        theirs = getattr(getattr(np, self.name), name)
        return self.xp.function(name, theirs, getattr(self.xp.library, self.name, None))
