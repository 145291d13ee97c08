"""numpy's functions of arrays that are not ufuncs, by those of the array API standard."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_array.standard.array import REFUSALS, StandardArray

if TYPE_CHECKING:
    from tenonnx_array.standard.namespace import StandardNamespace

# Names that mean in the standard, or wherever a library has them, what they mean in numpy.
SAME = frozenset(
    """
    argsort broadcast_to det einsum fft flip ifft imag irfft nonzero real repeat rfft roll
    searchsorted sort stack take_along_axis tensordot tile tril triu
    """.split()  # noqa: SIM905 - a list would be a page
)

Axes = int | Sequence[int] | None


def asarray(xp: StandardNamespace, value: Any, dtype: Any = None) -> StandardArray:
    """Return an array of a value."""
    if isinstance(value, StandardArray):
        return value if dtype is None else value.astype(dtype, copy=False)
    return StandardArray(xp, xp.device.upload(np.asarray(value, dtype)))


def full(xp: StandardNamespace, shape: Any, value: Any, dtype: Any = None) -> StandardArray:
    """Return an array of one value."""
    if isinstance(value, StandardArray):
        made: StandardArray = xp.broadcast_to(asarray(xp, value, dtype), shape).copy()
        return made
    one = np.asarray(value, dtype)
    sizes = (int(shape),) if isinstance(shape, int | np.integer) else tuple(map(int, shape))
    if one.dtype.kind not in "biuf":
        return asarray(xp, np.full(sizes, one))
    return StandardArray(
        xp, xp.library.full(sizes, one.item(), dtype=xp.own[one.dtype], **xp.placed)
    )


def _filled(value: int) -> Callable[..., StandardArray]:
    return lambda xp, shape, dtype=float: full(xp, shape, value, dtype)


def _filled_like(value: int) -> Callable[..., StandardArray]:
    return lambda xp, x, dtype=None: full(xp, x.shape, value, dtype or x.dtype)


def where(xp: StandardNamespace, condition: Any, a: Any, b: Any) -> StandardArray:
    """Choose between elements, in the type that numpy would."""
    dtype = np.result_type(*(x.dtype if hasattr(x, "dtype") else x for x in (a, b)))
    arrays = (xp.native(condition, np.dtype(bool)), xp.native(a, dtype), xp.native(b, dtype))
    return StandardArray(xp, xp.library.where(*arrays))


def concatenate(xp: StandardNamespace, arrays: Sequence[Any], axis: int = 0) -> StandardArray:
    """Join arrays along an axis that they have."""
    dtype = np.result_type(*(x.dtype for x in arrays))
    return StandardArray(xp, xp.library.concat([xp.native(x, dtype) for x in arrays], axis=axis))


def clip(xp: StandardNamespace, x: Any, low: Any = None, high: Any = None) -> Any:
    """Limit elements."""
    x = x if low is None else xp.maximum(x, low)
    return x if high is None else xp.minimum(x, high)


def take(xp: StandardNamespace, x: Any, indices: Any, axis: int | None = None) -> StandardArray:
    """Return parts of an array by their numbers, which may count from behind."""
    x = asarray(xp, x) if axis is not None else asarray(xp, x).ravel()
    axis = (axis or 0) % x.ndim
    if not isinstance(indices, StandardArray):
        indices = np.asarray(indices)
        indices = np.where(indices < 0, indices + x.shape[axis], indices)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    flat = xp.native(indices.reshape(-1), np.dtype(np.int64))
    return StandardArray(xp, xp.library.take(x.array, flat, axis=axis)).reshape(shape)


def expand_dims(xp: StandardNamespace, x: Any, axis: Axes) -> StandardArray:
    """Return an array with axes of one element."""
    array = asarray(xp, x)
    axes = (axis,) if isinstance(axis, int | np.integer) else tuple(axis or ())
    rank = array.ndim + len(axes)
    new = {int(a) % rank for a in axes}
    rest = iter(array.shape)
    return array.reshape(tuple(1 if i in new else next(rest) for i in range(rank)))


def moveaxis(xp: StandardNamespace, x: Any, source: Any, destination: Any) -> StandardArray:
    """Return an array with axes elsewhere."""
    array = asarray(xp, x)
    places, targets = (np.atleast_1d(axes) % array.ndim for axes in (source, destination))
    order = [axis for axis in range(array.ndim) if axis not in places]
    for target, place in sorted(zip(targets.tolist(), places.tolist(), strict=True)):
        order.insert(target, place)
    return array.transpose(order)


def squeeze(xp: StandardNamespace, x: Any, axis: Axes = None) -> StandardArray:
    """Return an array without axes of one element."""
    axes = (axis,) if isinstance(axis, int | np.integer) else axis
    gone = {a for a, n in enumerate(x.shape) if n == 1 or axes is not None}
    gone &= gone if axes is None else {int(a) % x.ndim for a in axes}
    if any(x.shape[a] != 1 for a in gone):
        raise ValueError(f"expected axes {axes} of one element, found shape {x.shape}")
    return asarray(xp, x).reshape([n for a, n in enumerate(x.shape) if a not in gone])


def copyto(xp: StandardNamespace, target: Any, value: Any, where: Any = True) -> None:
    """Write elements where a condition holds."""
    target[...] = value if where is True else xp.where(where, value, target)


@functools.cache
def reduced_dtype(function: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of what numpy makes of elements of a type."""
    made: np.dtype[Any] = getattr(np, function)(np.ones(1, dtype)).dtype
    return made


def _reduction(name: str, standard: str) -> Callable[..., StandardArray]:
    """Return a function along axes; ``standard`` is its name in the standard."""

    def reduce(
        xp: StandardNamespace, x: Any, axis: Axes = None, dtype: Any = None, **named: Any
    ) -> StandardArray:
        x = asarray(xp, x)
        own: Any = getattr(xp.library, standard, None) or getattr(xp.library, name, None)
        result = reduced_dtype(name, x.dtype) if dtype is None else np.dtype(dtype)
        by_place = name.startswith("arg") or result == np.bool_
        array = x.array if by_place else xp.cast(x.array, result)
        axes = tuple(map(int, axis)) if isinstance(axis, Sequence) else axis
        if name.startswith("cum") and axes is None:
            array, axes = xp.library.reshape(array, (-1,)), 0
        try:
            made = StandardArray(xp, own(array, axis=axes, **named))
        except REFUSALS:
            made = xp.on_host(name, getattr(np, name), x, axis=axis, **named)
        return made.astype(result, copy=False)

    return reduce


STANDARD = {"cumprod": "cumulative_prod", "cumsum": "cumulative_sum"}
REDUCTION_NAMES = (
    "all",
    "any",
    "argmax",
    "argmin",
    "cumprod",
    "cumsum",
    "max",
    "mean",
    "min",
    "prod",
    "sum",
)

# By numpy's names; each takes the namespace first.
STANDARD_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _reduction(name, STANDARD.get(name, name)) for name in REDUCTION_NAMES},
    "asarray": asarray,
    "ascontiguousarray": asarray,
    "clip": clip,
    "concatenate": concatenate,
    "copyto": copyto,
    "empty": _filled(0),
    "empty_like": _filled_like(0),
    "expand_dims": expand_dims,
    "full": full,
    "full_like": lambda xp, x, value, dtype=None: full(xp, x.shape, value, dtype or x.dtype),
    "moveaxis": moveaxis,
    "ones": _filled(1),
    "ones_like": _filled_like(1),
    "reshape": lambda xp, x, shape: asarray(xp, x).reshape(shape),
    "squeeze": squeeze,
    "square": lambda _, x: x * x,
    "swapaxes": lambda xp, x, one, other: asarray(xp, x).swapaxes(one, other),
    "take": take,
    "transpose": lambda xp, x, axes=None: asarray(xp, x).transpose(axes or ()),
    "where": where,
    "zeros": _filled(0),
    "zeros_like": _filled_like(0),
}
