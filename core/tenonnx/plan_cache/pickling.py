"""Plans as bytes: pickles that hold no code, and name none but what is admitted."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenonnx.graph.values import ValueInfo
from tenonnx.plan_cache import NotCacheable, admitted
from tenonnx.plan_cache.unpickling import (
    device_of,
    host,
    inside,
    later_at,
    of_weight,
    pooled,
    provider_at,
    session_options,
    weight_at,
    weights_at,
)
from tenonnx.plan_cache.weights import Stores
from tenonnx.process.later import Later
from tenonnx.provider import HOST, HostDevice
from tenonnx.weights.storage import is_packed, root
from tenonnx.weights.weight import Weight

if TYPE_CHECKING:
    from tenonnx.interface.session_info import SessionParts
    from tenonnx.options import SessionOptions
    from tenonnx.provider import Provider

# Bytes of an array from which on it lies beside the pickle, and is mapped.
MIN_OUT_OF_BAND_BYTES = 16 << 10


# Bytes, and large arrays beside them.
Pickled: TypeAlias = tuple[bytes, list[pickle.PickleBuffer]]


class Pickler(pickle.Pickler):
    """Pickles the parts of a plan.

    Args:
        stores: Takes the weights.
        options: The session's, which whoever opens the plan has, too.
        providers: The session's.
        later: Takes the pickles of what is made when it is asked for, and arrays beside them.
            ``None`` for one of these, and whatever else is opened when there are providers.

    Attributes:
        apart: Large arrays.
    """

    def __init__(
        self,
        stores: Stores,
        options: SessionOptions,
        providers: Sequence[Provider],
        later: list[Pickled] | None = None,
    ) -> None:
        self._file, self.apart = io.BytesIO(), list[pickle.PickleBuffer]()
        beside = functools.partial(_is_small, self.apart)
        super().__init__(self._file, pickle.HIGHEST_PROTOCOL, buffer_callback=beside)
        self._stores, self._options = stores, options
        self._providers, self._later = providers, later
        self._numbers = {id(each): number for number, each in enumerate(providers)}
        shared = (type(each) for each in providers if "device" not in vars(each))
        self._devices = {id(cls.device): cls for cls in shared if cls.device is not HOST}

    def pickled(self, thing: Any) -> Pickled:
        """Return the bytes of something, and the large arrays beside them."""
        self.dump(thing)
        return self._file.getvalue(), self.apart

    def reducer_override(self, thing: Any) -> Any:
        """Return how to keep an object; ``NotImplemented`` if as pickle would."""
        kind = type(thing)
        if kind is Weight:
            return weight_at, self._stores.reference(thing)
        if kind is ValueInfo:
            return self._value(thing)
        if kind is Later:
            return self._put_off(thing.open())
        if kind is _Weights:
            return weights_at, ([self._stores.reference(weight) for weight in thing.weights],)
        if self._later is None and (number := self._numbers.get(id(thing))) is not None:
            return provider_at, (number,)
        if (cls := self._devices.get(id(thing))) is not None:
            return device_of, (cls,)
        if kind is np.ndarray:
            return self._array(thing)
        if (reduced := REDUCERS.get(kind)) is not None:
            return reduced(thing)
        if thing is self._options:
            return session_options, ()
        if isinstance(thing, type):
            return admitted.reduced(thing)
        if kind.__module__.startswith("onnx_ir"):
            raise NotCacheable(f"something refers to an onnx_ir.{kind.__name__}")
        return NotImplemented

    def _value(self, value: ValueInfo) -> Any:
        """Return how to keep a value: a small weight as a view of the one piece of all.

        A handle takes as long to make as all else, and few are asked for.
        """
        weight = value.weight
        if weight is None or is_packed(weight._dtype) or self._stores.pool.place_of(weight) is None:
            return NotImplemented
        return ValueInfo, (value.id, value.name, value.dtype, value.shape, weight.on(HOST))

    def _put_off(self, thing: Any) -> Any:
        """Pickle something by itself."""
        if self._later is None:
            return Later, (thing,)
        if type(thing) is tuple and all(type(each) is Weight for each in thing):
            thing = _Weights(thing)
        pickler = Pickler(self._stores, self._options, self._providers)
        self._later.append(pickler.pickled(thing))
        return later_at, (len(self._later) - 1,)

    def _array(self, array: np.ndarray[Any, Any]) -> Any:
        """Return how to keep an array: a weight's by where it lies."""
        owner = root(array).base
        if not isinstance(owner, Weight):
            return NotImplemented
        shape, dtype, strides = array.shape, array.dtype, array.strides
        whole = owner.strides is None and array.flags.c_contiguous and array.nbytes == owner.nbytes
        start = 0
        if not whole:  # most are, and asking for the address takes longer than all else
            start = array.__array_interface__["data"][0] - owner.storage.address - owner.offset
        if (place := self._stores.pool.place_of(owner)) is not None:
            return pooled, (place + start, dtype, shape, strides)
        if start == 0 and shape == owner.shape:
            own = owner.array
            if dtype == own.dtype and strides == own.strides:
                return of_weight, (owner,)
        return inside, (owner, start, dtype, shape, strides)


def _is_small(apart: list[pickle.PickleBuffer], buffer: pickle.PickleBuffer) -> bool:
    if buffer.raw().nbytes < MIN_OUT_OF_BAND_BYTES:
        return True
    apart.append(buffer)
    return False


class _Weights:
    """Many weights, whose places are written as one list."""

    def __init__(self, weights: tuple[Weight, ...]) -> None:
        self.weights = weights


def _host(_: HostDevice) -> Any:
    return host, ()


def _dtype(dtype: np.dtype[Any]) -> Any:
    """Keep a dtype so that the same object comes back, as it is asked whether it is."""
    return np.dtype, (dtype.str,)


REDUCERS: dict[type, Any] = {
    **{type(np.dtype(kind)): _dtype for kind in "?bBhHiIlLqQefdFDgGO"},
    **admitted.REDUCERS,
    HostDevice: _host,
}


def pickled(parts: SessionParts, stores: Stores, options: SessionOptions) -> Pickled:
    """Return the bytes of a session's parts, and what lies beside them.

    Raises:
        NotCacheable: Something of it cannot be cached.
    """
    _ = parts.program.direct  # is stored with it: finding it again would take all single steps
    later, apart = list[Pickled](), list[pickle.PickleBuffer]()
    main, beside = dumped(Pickler(stores, options, parts.providers, later), parts)
    name, small = stores.pool.close()
    if small:
        apart.append(pickle.PickleBuffer(small))
    apart += beside
    for content, arrays in later:
        apart += [pickle.PickleBuffer(content), *arrays]
    counts = tuple(len(arrays) for _, arrays in [(main, beside), *later])
    return plain((small and name, stores.derived(), counts)) + main, apart


def plain(values: Any) -> bytes:
    """Return the bytes of plain values."""
    return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)


def dumped(pickler: Pickler, thing: Any) -> Pickled:
    """Return the bytes of something, and large arrays beside them.

    Raises:
        NotCacheable: Something of it cannot be kept.
    """
    try:
        return pickler.pickled(thing)
    except NotCacheable:
        raise
    except Exception as error:  # of whatever class a plug-in's object likes
        raise NotCacheable(f"{type(error).__name__}: {error}") from error
