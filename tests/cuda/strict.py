"""Arrays in host memory that are as strict as cupy's about where arrays are.

A numpy array among them is refused, as cupy does; and what would make the host wait for the device
(``int(x)``, ``if x``, ``x.tolist()``) raises, which cupy does not: no kernel should do it unseen.
Names, parameters and element types are those that ``cupy_names.json`` says cupy has.
"""

from __future__ import annotations

import json
import operator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tenonnx_cuda.capture.tracer import current_trace

CUPY = json.loads(Path(__file__).with_name("cupy_names.json").read_text())
ARRAY_NAMES = frozenset(CUPY["array"])
DTYPES = frozenset("?bBhHiIlLqQefdFD")

MAKERS = frozenset({"asarray", "array", "ascontiguousarray", "asanyarray"})
"""Functions that take numpy's arrays, and bring them over in the open."""

WAITING = frozenset({"item", "tolist", "tobytes", "dump", "dumps", "tofile"})

PASSED = ("iinfo", "finfo", "dtype", "result_type", "can_cast", "promote_types", "shape", "ndim")
UFUNC_METHODS = frozenset({"accumulate", "outer", "reduce"})
REDUCES = frozenset({"add", "multiply"})
"""Ufuncs whose ``reduce`` and ``accumulate`` cupy has."""

AT = frozenset({"add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or"})
AT_DTYPES = frozenset("iIlLqQefd")


CAPTURING: list[bool] = []
"""Has an item while work is recorded."""


class HiddenTransferError(TypeError):
    """An implicit copy from host to device, or back."""


def refuse(what: str) -> Any:
    raise HiddenTransferError(what)


def written(array: np.ndarray[Any, Any]) -> None:
    """Refuse what would be left out when a call that is being traced is repeated."""
    traced = current_trace()
    if traced is not None and traced.complete:
        known = [*traced.made, *(buffer for buffer in traced.buffers if buffer is not None)]
        shares = any(np.may_share_memory(array, one.held) for one in known)
        assert not shares, "this is not traced: call cannot_capture() where it is written to"


def has_dtype(dtype: np.dtype[Any]) -> bool:
    return dtype.char in DTYPES or dtype.name == "bfloat16"


def wrap(thing: Any) -> Any:
    """Make numpy's arrays and scalars the device's, in tuples and lists too."""
    if isinstance(thing, np.ndarray | np.generic):
        return StrictArray(np.asarray(thing))
    if isinstance(thing, tuple | list):
        items = map(wrap, thing)
        return type(thing)(*items) if hasattr(thing, "_fields") else type(thing)(items)
    return thing


def made(thing: Any) -> Any:
    """As ``wrap`` what numpy made: a device's arrays begin at multiples of 256 bytes."""
    if isinstance(thing, np.ndarray) and thing.base is None and thing.flags.c_contiguous:
        there = empty(thing.shape, thing.dtype)
        there[...] = thing
        return StrictArray(there, alone=True)
    return wrap(thing)


def unwrap(thing: Any, where: str) -> Any:
    if isinstance(thing, StrictArray):
        return thing.held
    if isinstance(thing, np.ndarray):
        refuse(f"{where} got a numpy array {thing.dtype}{list(thing.shape)}")
    if isinstance(thing, tuple | list) and not hasattr(thing, "_fields"):
        return type(thing)(unwrap(item, where) for item in thing)
    return thing


def place_of(index: Any) -> Any:
    """Return an index as numpy takes it."""
    parts = index if isinstance(index, tuple) else (index,)
    for part in parts:
        if isinstance(part, list) and any(isinstance(p, StrictArray) for p in part):
            refuse("a list of device arrays as an index")
    plain = tuple(unwrap(part, "an index") for part in parts)
    return plain if isinstance(index, tuple) else plain[0]


class StrictArray:
    """An array on a simulated device."""

    __slots__ = ("__weakref__", "alone", "held")
    __array_priority__ = 100

    def __init__(self, held: np.ndarray[Any, Any], *, alone: bool = False) -> None:
        if not has_dtype(held.dtype):
            raise TypeError(f"Unsupported dtype {held.dtype}")
        self.held, self.alone = held, alone or held.base is None

    def __getattr__(self, name: str) -> Any:
        if name in WAITING:
            refuse(f"x.{name}() waits for the device")
        if name not in ARRAY_NAMES:
            raise AttributeError(f"cupy's arrays have no {name}")
        if name == "base":
            return None if self.alone else "an array that this one is a view of"
        if name == "data":
            return SimpleNamespace(ptr=self.held.ctypes.data)
        found = getattr(self.held, name)
        if not callable(found):
            return wrap(found) if isinstance(found, np.ndarray) else found
        return Function(name, found, None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("alone", "held", "__weakref__"):
            object.__setattr__(self, name, value)
        else:
            setattr(self.held, name, value)

    def __getitem__(self, index: Any) -> Any:
        place = place_of(index)
        parts = place if isinstance(place, tuple) else (place,)
        if any(isinstance(p, np.ndarray) and p.dtype == bool for p in parts):
            refuse("x[mask] waits for the device to count")
        return wrap(self.held[place])

    def __setitem__(self, index: Any, value: Any) -> None:
        written(self.held)
        self.held[place_of(index)] = unwrap(value, "an assignment")

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Any:
        return (wrap(row) for row in self.held)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        assert StrictArray in types
        return getattr(xp, function.__name__)(*args, **kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = getattr(xp, ufunc.__name__)
        return (function if method == "__call__" else getattr(function, method))(*inputs, **kwargs)

    def __hash__(self) -> int:
        raise TypeError("unhashable")

    def __repr__(self) -> str:
        return f"<StrictArray {self.held.dtype}{list(self.held.shape)}>"


def _waits(name: str) -> Any:
    def method(*arguments: Any) -> Any:
        refuse(f"{name}(x) of {len(arguments)} arguments waits for the device")

    return method


for _name in ("array", "bool", "int", "float", "index", "complex", "contains", "round"):
    setattr(StrictArray, f"__{_name}__", _waits(_name))


def _operator(name: str) -> Any:
    function = getattr(operator, name)

    def method(self: StrictArray, other: Any) -> Any:
        return made(check_types(name, function, self.held, unwrap(other, name)))

    def reflected(self: StrictArray, other: Any) -> Any:
        return made(check_types(name, function, unwrap(other, name), self.held))

    return method, reflected


UFUNC_OF = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "pow": "power",
    "floordiv": "floor_divide", "mod": "remainder", "lshift": "left_shift",
    "rshift": "right_shift", "and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
    "ne": "not_equal", "matmul": "matmul", "neg": "negative", "invert": "invert",
    "abs": "absolute",
}  # fmt: skip


def check_types(name: str, function: Any, *inputs: Any) -> Any:
    """Refuse bfloat16 where cupy's ufunc has no loop for it."""
    known = CUPY["names"][""].get(UFUNC_OF.get(name, name)) or {}
    types = known.get("types", [])
    if types and not any("E" in each for each in types):
        dtypes = [i.dtype for i in inputs if hasattr(i, "dtype")]
        if any(dtype.name == "bfloat16" for dtype in dtypes):
            raise TypeError(f"cupy's {name} has no bfloat16")
    return function(*inputs)


for _name in UFUNC_OF:
    if _name in ("neg", "invert", "abs"):
        continue
    _method, _reflected = _operator(_name)
    _plain = _name.rstrip("_")
    setattr(StrictArray, f"__{_plain}__", _method)
    setattr(StrictArray, f"__r{_plain}__", _reflected)
    if hasattr(operator, f"i{_plain}"):

        def _inplace(self: StrictArray, other: Any, name: str = _plain) -> Any:
            written(self.held)
            self.held = getattr(operator, f"i{name}")(self.held, unwrap(other, name))
            return self

        setattr(StrictArray, f"__i{_plain}__", _inplace)
StrictArray.__neg__ = lambda self: wrap(-self.held)  # type: ignore[attr-defined]
StrictArray.__pos__ = lambda self: wrap(+self.held)  # type: ignore[attr-defined]
StrictArray.__invert__ = lambda self: wrap(~self.held)  # type: ignore[attr-defined]
StrictArray.__abs__ = lambda self: wrap(abs(self.held))  # type: ignore[attr-defined]


class Function:
    """A function of the namespace, or a method of an array."""

    def __init__(self, name: str, function: Any, known: Any) -> None:
        self.__name__ = name
        self._function, self._known = function, known or {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self.__name__
        parameters = self._known.get("parameters", ["*"])
        if "*" not in parameters and "kwargs" not in parameters:
            strange = [keyword for keyword in kwargs if keyword not in parameters]
            if strange:
                raise TypeError(f"cupy's {name} has no parameter {strange[0]}")
        if name in MAKERS and args and isinstance(args[0], np.ndarray):
            if CAPTURING:
                raise HiddenTransferError(f"{name} of a host array, which no replay would read")
            return wrap(np.array(args[0], *args[1:], **kwargs))
        plain = [unwrap(a, name) for a in args]
        target = kwargs.get("out")
        if isinstance(target, StrictArray):
            written(target.held)
        named = {k: unwrap(v, name) for k, v in kwargs.items()}
        result = check_types(name, lambda *given: self._function(*given, **named), *plain)
        if name == "empty":
            return StrictArray(result, alone=True)
        return target if isinstance(target, StrictArray) else made(result)

    def at(self, array: Any, index: Any, values: Any) -> None:
        if self.__name__ not in AT or array.dtype.char not in AT_DTYPES:
            raise TypeError(f"cupy's {self.__name__}.at has no {array.dtype}")
        written(array.held)
        self._function.at(array.held, place_of(index), unwrap(values, "at"))

    def __getattr__(self, name: str) -> Any:
        if name not in UFUNC_METHODS:
            raise AttributeError(name)
        if name != "outer" and self.__name__ not in REDUCES:
            raise NotImplementedError(f"cupy's {self.__name__}.{name} is not supported")
        return Function(f"{self.__name__}.{name}", getattr(self._function, name), None)


def widened(function: Any) -> Any:
    """As cupy does it: bfloat16 becomes float32."""

    def call(*args: Any, **kwargs: Any) -> Any:
        wide = (a.astype(np.float32) if is_bfloat16(a) else a for a in args)
        return function(*wide, **kwargs)

    return call


def accumulated(function: Any) -> Any:
    """As cupy does it: not for bfloat16."""

    def call(a: Any, *args: Any, **kwargs: Any) -> Any:
        if is_bfloat16(a):
            raise TypeError(f"cupy's {function.__name__} of bfloat16 does not compile")
        return function(a, *args, **kwargs)

    return call


def unsorted(function: Any) -> Any:
    """As cupy does it: Thrust has no bfloat16."""

    def call(a: Any, *args: Any, **kwargs: Any) -> Any:
        if is_bfloat16(a):
            raise NotImplementedError("Sorting arrays with dtype 'bfloat16' is not supported")
        return function(a, *args, **kwargs)

    return call


def remainder(a: Any, b: Any) -> Any:
    """As cupy does it."""
    if getattr(a, "dtype", np.dtype(int)).kind in "biu":
        return np.remainder(a, b)
    with np.errstate(all="ignore"):
        return a - np.floor(a / b) * b


def matmul(a: Any, b: Any, **kwargs: Any) -> Any:
    """As cuBLAS does it: sums of 16-bit floats are float32s."""
    small = a.dtype == b.dtype and a.dtype.itemsize == 2 and a.dtype.kind in "fV"
    if small and not kwargs:
        wide = np.matmul(a.astype(np.float32), b.astype(np.float32))
        return wide.astype(a.dtype)
    return np.matmul(a, b, **kwargs)


def empty(shape: Any, dtype: Any = float) -> Any:
    """As a device does it: at multiples of 256 bytes."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    memory = np.empty(count * kind.itemsize + 256, np.uint8)
    return np.ndarray(shape, kind, memory, -memory.ctypes.data % 256)


def is_bfloat16(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.name == "bfloat16"


DIFFERENT = {
    "empty": empty,
    "where": widened(np.where),
    "tril": widened(np.tril),
    "triu": widened(np.triu),
    "cumsum": accumulated(np.cumsum),
    "cumprod": accumulated(np.cumprod),
    **{name: unsorted(getattr(np, name)) for name in ("sort", "argsort", "unique")},
    "remainder": remainder,
    "matmul": matmul,
}
"""The module's functions that differ between cupy and numpy."""


class StrictNamespace:
    """numpy's functions over such arrays, as far as cupy has them."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._module: Any = np
        for part in filter(None, path.split(".")):
            self._module = getattr(self._module, part)
        self._names = CUPY["names"].get(path, {})

    def __getattr__(self, name: str) -> Any:
        inner = f"{self._path}.{name}".lstrip(".")
        if inner in CUPY["names"] or inner == "lib":
            return StrictNamespace(inner)
        if name.startswith("__") or name not in self._names:
            raise AttributeError(f"cupy has no {inner}")
        found = getattr(self._module, name)
        if isinstance(found, type) or not callable(found) or name in PASSED:
            return found
        found = DIFFERENT.get(name, found)
        return Function(name, found, self._names[name])


xp = StrictNamespace()
