"""cupy's functions, where they differ from numpy's mended.

cupy 14 has bfloat16, but chooses among such elements in float32, and neither accumulates nor sorts
them. Its remainder is ``a - floor(a / b) * b``, which is NaN for an infinite divisor. Its
generators draw other numbers, so numpy's are brought over: a seed means the same everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.capture.tracer import allocate

if TYPE_CHECKING:
    from tenonnx_cuda.matmul.cublas import Products

BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)


class DeviceNamespace:
    """The namespace of a device's arrays.

    Args:
        cupy: The module.
        products: What multiplies matrices in its place, if anything does.

    Attributes:
        products: The same.
    """

    def __init__(self, cupy: Any, products: Products | None = None) -> None:
        self._cupy = cupy
        self.products = products
        self.random = Draws(cupy)
        if products is not None:
            self.matmul = products.matmul

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)
        setattr(self, name, found)  # asked once
        return found

    def empty(self, shape: Any, dtype: Any = np.float64) -> Array:
        """Return an array whose elements are still to be written."""
        return allocate(self._cupy, shape, dtype)

    def where(self, condition: Array, *choices: Any) -> Any:
        """Return elements of one of two choices; where the condition holds if there are none."""
        if not any(_dtype(choice) == BFLOAT16 for choice in choices):
            return self._cupy.where(condition, *choices)
        kind = np.result_type(*map(_dtype, choices))
        alike = [self._cupy.asarray(choice, kind) for choice in choices]
        return self._cupy.where(condition, *map(_bits, alike)).view(kind)

    def tril(self, m: Array, k: int = 0) -> Array:
        """Return the lower triangle, and zeros above it."""
        return self._cupy.tril(_bits(m), k).view(m.dtype)

    def triu(self, m: Array, k: int = 0) -> Array:
        """Return the upper triangle, and zeros below it."""
        return self._cupy.triu(_bits(m), k).view(m.dtype)

    def cumsum(self, a: Array, axis: int | None = None, dtype: Any = None) -> Array:
        """Return sums from the first element on."""
        if a.dtype != BFLOAT16:
            return self._cupy.cumsum(a, axis, dtype)
        return self._cupy.cumsum(a.astype(np.float32), axis).astype(dtype or BFLOAT16)

    def cumprod(self, a: Array, axis: int | None = None, dtype: Any = None) -> Array:
        """Return products from the first element on."""
        if a.dtype != BFLOAT16:
            return self._cupy.cumprod(a, axis, dtype)
        return self._cupy.cumprod(a.astype(np.float32), axis).astype(dtype or BFLOAT16)

    def unique(self, ar: Array, *wanted: Any, **more: Any) -> Any:
        """Return the elements that there are, in order, and what else is wanted of them."""
        if ar.dtype != BFLOAT16:
            return self._cupy.unique(ar, *wanted, **more)
        found = self._cupy.unique(ar.astype(np.float32), *wanted, **more)
        if not isinstance(found, tuple):
            return found.astype(BFLOAT16)
        return found[0].astype(BFLOAT16), *found[1:]

    def remainder(self, a: Array, b: Array) -> Array:
        """Return remainders of the divisor's sign."""
        if a.dtype.kind in "biu":
            return self._cupy.remainder(a, b)
        rest = self._cupy.fmod(a, b)
        other = (rest != 0) & ((rest < 0) != (b < 0))
        rest = self.where(other, rest + b, rest)
        return self.where(rest == 0, self.where(b < 0, -abs(rest), abs(rest)), rest)


class Draws:
    """The part of ``numpy.random`` that operators use: a Mersenne Twister on the host.

    Args:
        cupy: The module, to whose arrays draws are copied.
        state: numpy's generator, if there is one yet.
    """

    def __init__(self, cupy: Any, state: Any = None) -> None:
        self._cupy, self._state = cupy, state

    def RandomState(self, seed: int) -> Draws:  # noqa: N802 - numpy's name
        """Return a generator."""
        return Draws(self._cupy, np.random.RandomState(seed))

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: Any = None) -> Array:
        """Return draws from a normal distribution."""
        return self._cupy.asarray(self._state.normal(loc, scale, size))

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Array:
        """Return draws from an interval."""
        return self._cupy.asarray(self._state.uniform(low, high, size))


def _dtype(x: Any) -> Any:
    """Return an array's element type; a Python number as it is, whose type gives way."""
    return getattr(x, "dtype", x)


def _bits(m: Array) -> Array:
    return m.view(np.uint16) if m.dtype == BFLOAT16 else m
