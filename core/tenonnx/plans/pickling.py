"""Plans as bytes, and from bytes: pickles that hold no code, and name none but that of plug-ins."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Sequence
from contextvars import ContextVar
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx.plans import by_reference, stand_ins
from tenonnx.plans.admitted import NAMES, global_of, require
from tenonnx.plans.unkept import Unkept
from tenonnx.plans.weights import Opened, Stores
from tenonnx.provider import HOST, HostDevice
from tenonnx.weights.storage import root
from tenonnx.weights.weight import Weight

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions

APART = 16 << 10
"""Bytes of an array from which on it lies beside the pickle, and is mapped."""


class Surroundings(NamedTuple):
    """What a plan that is opened finds there.

    Attributes:
        stores: Where its weights lie.
        options: The session's.
    """

    stores: Opened
    options: SessionOptions


OPENING: ContextVar[Surroundings] = ContextVar("tenonnx_opening")


class Pickler(pickle.Pickler):
    """Pickles what a plan is made of.

    Args:
        stores: Takes the weights.
        options: The session's, which whoever opens the plan has, too.
        file: Takes the bytes.
        apart: Takes large arrays.
    """

    def __init__(
        self,
        stores: Stores,
        options: SessionOptions,
        file: io.BytesIO,
        apart: list[pickle.PickleBuffer],
    ) -> None:
        beside = functools.partial(_is_small, apart)
        super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback=beside)
        self._stores, self._options = stores, options

    def reducer_override(self, thing: Any) -> Any:
        """Returns how to keep an object; ``NotImplemented`` if as pickle would."""
        kind = type(thing)
        if (reduced := REDUCERS.get(kind)) is not None:
            return reduced(thing)
        if kind is Weight:
            return weight_at, self._stores.reference(thing)
        if thing is self._options:
            return session_options, ()
        if isinstance(thing, type):
            if global_of(thing.__module__, thing.__qualname__) is not thing:
                raise Unkept(f"{thing!r} is not what its module calls so")
            return NotImplemented
        return _of_ir(thing) if kind.__module__.startswith("onnx_ir") else NotImplemented


def _is_small(apart: list[pickle.PickleBuffer], buffer: pickle.PickleBuffer) -> bool:
    if buffer.raw().nbytes < APART:
        return True
    apart.append(buffer)
    return False


def _array(array: np.ndarray[Any, Any]) -> Any:
    owner = root(array).base
    if isinstance(owner, Weight):
        start = array.__array_interface__["data"][0] - owner.storage.address - owner.offset
        alike = start == 0 and array.shape == owner.shape and array.dtype == owner.array.dtype
        if alike and array.strides == owner.array.strides:
            return of_weight, (owner,)
        return inside, (owner, start, array.dtype, array.shape, array.strides)
    return NotImplemented


def _builtin(function: Any) -> Any:
    if function.__name__ in NAMES.get(function.__module__ or "", ()):
        return NotImplemented
    again = getattr(function.__self__, "__kept__", None)
    if again is not None:
        return again()
    if isinstance(function.__self__, ModuleType):
        if (function.__module__ or "").startswith("numpy"):
            return by_reference.reduced_numpy(function)
        global_of(function.__module__, function.__qualname__)
        return NotImplemented
    raise Unkept(f"{function!r} belongs to this process")


def _function(function: Any) -> Any:
    if function.__name__ in NAMES.get(function.__module__, ()):
        return NotImplemented
    if function.__module__.startswith("numpy"):
        return by_reference.reduced_numpy(function)
    require(function.__module__, own=by_reference.INSIDE in function.__qualname__)
    return by_reference.reduced_function(function)


def _module(module: ModuleType) -> Any:
    if module is not np:
        require(module.__name__)
    return by_reference.namespace, (module.__name__,)


def _host(_: HostDevice) -> Any:
    return host, ()


def _of_ir(thing: Any) -> Any:
    """Returns a stand-in for a part of a graph."""
    name = type(thing).__name__
    if name == "Value":
        return stand_ins.Value, stand_ins.of_value(thing)
    if name == "Node":
        return stand_ins.Node, stand_ins.of_node(thing)
    if name in ("DataType", "AttributeType"):
        return element_type, (name, int(thing))
    raise Unkept(f"something refers to an onnx_ir.{name}")


def _dtype(dtype: np.dtype[Any]) -> Any:
    """Keeps a dtype so that the same object comes back, as it is asked whether it is."""
    return np.dtype, (dtype.str,)


REDUCERS: dict[type, Any] = {
    **{type(np.dtype(kind)): _dtype for kind in "?bBhHiIlLqQefdFDgGO"},
    np.ndarray: _array,
    np.ufunc: by_reference.reduced_numpy,
    type(np.stack): by_reference.reduced_numpy,
    BuiltinFunctionType: _builtin,
    CellType: by_reference.reduced_cell,
    FunctionType: _function,
    HostDevice: _host,
    MethodType: by_reference.reduced_method,
    ModuleType: _module,
    by_reference.LRU: by_reference.reduced_cache,
    object: by_reference.reduced_sentinel,
}


def weight_at(kind: str, name: Any, place: tuple[Any, ...]) -> Weight:
    """Returns a weight of the plan that is opened."""
    return OPENING.get().stores.weight(kind, name, place)


def session_options() -> SessionOptions:
    """Returns the options of the session that opens a plan."""
    return OPENING.get().options


def of_weight(weight: Weight) -> np.ndarray[Any, Any]:
    """Returns a weight's array."""
    return weight.array


def inside(
    weight: Weight,
    start: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> np.ndarray[Any, Any]:
    """Returns another view of the memory that a weight lies in."""
    storage = weight.storage
    first = weight.offset + start
    flat = weight._registry.view(
        storage, 0, storage.size, element_type("DataType", UINT8), (storage.size,)
    )
    return np.ndarray(shape, dtype, flat.array, first, strides)


UINT8 = 2
"""``onnx.TensorProto.UINT8``."""


def element_type(name: str, number: int) -> Any:
    """Returns a member of an enumeration of onnx_ir's."""
    import onnx_ir as ir

    return ir.DataType(number) if name == "DataType" else ir.AttributeType(number)


def host() -> HostDevice:
    """Returns the host."""
    return HOST


class Unpickler(pickle.Unpickler):
    """Makes what a plan is made of; names nothing but what ``admitted`` admits."""

    def find_class(self, module: str, name: str) -> Any:
        """Returns a class or function."""
        return global_of(module, name)


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise Unkept(f"{module}.{name} is no plain value")


def plain(content: bytes | memoryview) -> Any:
    """Returns plain values from a pickle."""
    return _Plain(io.BytesIO(content)).load()


def pickled(
    thing: Any, stores: Stores, options: SessionOptions
) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Returns the bytes of a plan's parts, and large arrays beside them.

    Raises:
        Unkept: Something of it cannot be kept.
    """
    file, apart = io.BytesIO(), list[pickle.PickleBuffer]()
    try:
        Pickler(stores, options, file, apart).dump(thing)
    except Unkept:
        raise
    except Exception as error:  # of whatever class a plug-in's object likes
        raise Unkept(f"{type(error).__name__}: {error}") from error
    return file.getvalue(), apart


def unpickled(
    content: bytes | memoryview, apart: Sequence[memoryview], surroundings: Surroundings
) -> Any:
    """Returns a plan's parts.

    Raises:
        Unkept: They are not to be had here.
    """
    token = OPENING.set(surroundings)
    try:
        return Unpickler(io.BytesIO(content), buffers=apart).load()
    finally:
        OPENING.reset(token)
