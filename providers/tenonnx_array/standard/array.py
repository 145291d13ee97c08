"""An array of a library that follows the array API standard, with numpy's dtypes and methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tenonnx_array.standard.namespace import StandardNamespace

# Exceptions of libraries for unsupported types, arguments and kinds of indexing.
REFUSALS = (TypeError, NotImplementedError, IndexError, ValueError)

OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
INT64_DTYPE = np.dtype(np.int64)
ARRAY_METHODS = (
    *("all", "any", "argmax", "argmin", "clip", "cumsum", "max", "mean", "min", "nonzero", "prod"),
    *("repeat", "squeeze", "sum", "take"),
)


class StandardArray:
    """The arrays of the operator table's kernels.

    Args:
        xp: The namespace that made it.
        array: The library's array.
        back: Writes a new value of this part into the whole array, for libraries whose
            parts are no views.
    """

    __slots__ = ("_dtype", "array", "back", "xp")
    __array_ufunc__ = None  # numpy's arrays leave operators to this class
    __hash__ = None  # type: ignore[assignment]  # == compares elements

    def __init__(
        self, xp: StandardNamespace, array: Any, back: Callable[[Any], None] | None = None
    ) -> None:
        self.xp, self.array, self.back = xp, array, back
        self._dtype: np.dtype[Any] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of elements, as numpy has it."""
        if self._dtype is None:
            self._dtype = self.xp.numpys[self.array.dtype]
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements of each axis."""
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.array.shape)

    @property
    def size(self) -> int:
        """The number of its elements."""
        count = 1
        for n in self.array.shape:
            count *= n
        return count

    @property
    def T(self) -> StandardArray:  # noqa: N802 - numpy's name
        """The array with its axes in reverse."""
        return self.transpose()

    @property
    def real(self) -> StandardArray:
        """The real parts."""
        found: StandardArray = self.xp.real(self) if self.dtype.kind == "c" else self
        return found

    @property
    def imag(self) -> StandardArray:
        """The imaginary parts, of complex elements."""
        found: StandardArray = self.xp.imag(self)
        return found

    def astype(self, dtype: Any, copy: bool = True) -> StandardArray:
        """Return elements of another type."""
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self.copy() if copy else self
        return StandardArray(self.xp, self.xp.cast(self.array, dtype))

    def copy(self) -> StandardArray:
        """Return an array of its own memory."""
        return StandardArray(self.xp, self.xp.library.asarray(self.array, copy=True))

    def reshape(self, *shape: Any) -> StandardArray:
        """Return the elements in another shape."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        sizes = (sizes,) if isinstance(sizes, int | np.integer) else tuple(map(int, sizes))
        if -1 in sizes:
            rest = -int(np.prod(sizes))
            sizes = tuple(self.size // rest if n == -1 and rest else n for n in sizes)
        return self.part(
            self.xp.library.reshape(self.array, sizes),
            lambda new: self.xp.library.reshape(new, self.shape),
        )

    def ravel(self) -> StandardArray:
        """Return the elements along one axis."""
        return self.reshape((-1,))

    def transpose(self, *axes: Any) -> StandardArray:
        """Return the array with its axes in another order."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        order = tuple(order or reversed(range(self.ndim)))
        order = tuple(int(axis) % self.ndim for axis in order)
        permute, inverse = self.xp.library.permute_dims, tuple(np.argsort(order).tolist())
        return self.part(permute(self.array, order), lambda new: permute(new, inverse))

    def swapaxes(self, one: int, other: int) -> StandardArray:
        """Return the array with two axes exchanged."""
        order = list(range(self.ndim))
        order[one], order[other] = order[other], order[one]
        return self.transpose(order)

    def view(self, dtype: Any) -> StandardArray:
        """Return the same bits as elements of another type."""
        found: StandardArray = self.xp.on_host("view", self.numpy().view, dtype)
        return found

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return numpy's array."""
        return self.xp.device.download(self.array)

    def item(self) -> Any:
        """Return the one element."""
        return self.numpy().item()

    def tolist(self) -> Any:
        """Return the elements in lists."""
        return self.numpy().tolist()

    def part(self, array: Any, inverse: Callable[[Any], Any]) -> StandardArray:
        """Return another arrangement of all elements, which can be written to."""
        if self.xp.has_views:
            return StandardArray(self.xp, array)
        return StandardArray(self.xp, array, lambda new: self.replace(inverse(new)))

    def replace(self, array: Any) -> None:
        """Replace the elements, also in the array of which this is a view."""
        self.array = array
        if self.back is not None:
            self.back(array)

    def __getitem__(self, index: Any) -> StandardArray:
        forward, turned = forwards(index, self.shape)
        try:
            found = self.array[self._native(forward)]
            found = self.xp.library.flip(found, axis=turned) if turned else found
        except REFUSALS:
            taken: StandardArray = self.xp.on_host("[]", self.numpy().__getitem__, index)
            return taken
        if self.xp.has_views and not turned:
            return StandardArray(self.xp, found)
        return StandardArray(self.xp, found, lambda new: self._write(index, new))

    def __setitem__(self, index: Any, value: Any) -> None:
        value = self.xp.native(value, self.dtype)
        self._write(index, value)

    def _write(self, index: Any, value: Any) -> None:
        try:
            self.array[self._native(index)] = value
        except REFUSALS:
            whole = np.array(self.numpy())
            place = self.xp.host(index)
            self.xp.on_host("[]=", whole.__setitem__, place, self.xp.device.download(value))
            written = self.xp.device.upload(whole)
            if self.xp.has_views:
                self.array[...] = written
            else:
                self.replace(written)
            return
        if self.back is not None:
            self.back(self.array)

    def _native(self, index: Any) -> tuple[Any, ...]:
        """Return an index as the library takes it."""
        found = []
        for place in index if isinstance(index, tuple) else (index,):
            if isinstance(place, list | np.ndarray | np.generic | StandardArray):
                array = self.xp.asarray(place)
                place = self.xp.cast(
                    array.array, array.dtype if array.dtype == bool else INT64_DTYPE
                )
            found.append(place)
        return tuple(found)

    def __neg__(self) -> Any:
        return self.xp.negative(self)

    def __invert__(self) -> Any:
        return self.xp.invert(self)

    def __abs__(self) -> Any:
        return self.xp.absolute(self)

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[StandardArray]:
        return (self[i] for i in range(len(self)))


def forwards(index: Any, shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """Return an index without steps backwards, and the axes of its result to turn around.

    The standard has such steps, and some libraries have not.
    """
    places = list(index) if isinstance(index, tuple) else [index]
    if not any(isinstance(p, slice) and p.step is not None and p.step < 0 for p in places):
        return index, ()
    taken = sum(place is not None and place is not Ellipsis for place in places)
    axis = result = 0
    turned = []
    for number, place in enumerate(places):
        if place is Ellipsis:
            axis, result = axis + len(shape) - taken, result + len(shape) - taken
            continue
        if isinstance(place, slice) and place.step is not None and place.step < 0:
            run = range(*place.indices(shape[axis]))[::-1]
            places[number] = slice(run.start, run.stop, run.step) if run else slice(0, 0)
            turned.append(result)
        axis += place is not None
        result += place is None or isinstance(place, slice)
    return tuple(places), tuple(turned)


def _operator(function: str) -> Callable[..., Any]:
    return lambda a, b: getattr(a.xp, function)(a, b)


def _reflected(function: str) -> Callable[..., Any]:
    return lambda b, a: getattr(b.xp, function)(a, b)


def _method(function: str) -> Callable[..., Any]:
    return lambda x, *given, **named: getattr(x.xp, function)(x, *given, **named)


for _name, _function in {**OPERATORS, **COMPARISONS}.items():
    setattr(StandardArray, f"__{_name}__", _operator(_function))
for _name, _function in OPERATORS.items():
    setattr(StandardArray, f"__r{_name}__", _reflected(_function))
for _name in ARRAY_METHODS:
    setattr(StandardArray, _name, _method(_name))
