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
    array_of,
    device_of,
    later_of,
    session_options,
    view_of,
    weight_at,
)
from tenonnx.plan_cache.weights import Stores, is_small
from tenonnx.process.later import Later
from tenonnx.provider import HOST, Provider
from tenonnx.weights.storage import is_packed, root
from tenonnx.weights.weight import Weight

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions

# Bytes of an array from which on it lies beside the pickle, and is mapped.
MIN_OUT_OF_BAND_BYTES = 16 << 10


# Bytes, and large pieces beside them.
Pickled: TypeAlias = tuple[bytes, list[pickle.PickleBuffer]]


class Pickler(pickle.Pickler):
    """Pickles the parts of a plan.

    Args:
        stores: Takes the weights.
        options: The session's, which whoever opens the plan has, too.
        providers: The session's.
        later: Whether something is pickled by itself. It has no provider: that would be a copy.
    """

    def __init__(
        self,
        stores: Stores,
        options: SessionOptions,
        providers: Sequence[Provider],
        *,
        later: bool = False,
    ) -> None:
        self._file, self._apart = io.BytesIO(), list[pickle.PickleBuffer]()
        beside = functools.partial(_is_in_band, self._apart)
        super().__init__(self._file, pickle.HIGHEST_PROTOCOL, buffer_callback=beside)
        self._stores, self._options = stores, options
        self._providers, self._later = providers, later
        shared = (type(each) for each in providers if "device" not in vars(each))
        self._devices: dict[int, type] = {id(cls.device): cls for cls in shared}
        self._devices[id(HOST)] = Provider

    def pickled(self, thing: Any) -> Pickled:
        """Return the bytes of something, and what lies beside them."""
        self.dump(thing)
        return self._file.getvalue(), self._apart

    def reducer_override(self, thing: Any) -> Any:
        """Return how to keep an object; ``NotImplemented`` if as pickle would."""
        kind = type(thing)
        if kind is Weight:
            return weight_at, self._stores.reference(thing)
        if kind is ValueInfo:
            return self._value(thing)
        if kind is Later:
            apart = Pickler(self._stores, self._options, self._providers, later=True)
            content, arrays = apart.pickled(thing.open())
            return later_of, (pickle.PickleBuffer(content), arrays)
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
        if self._later and isinstance(thing, Provider):
            raise NotCacheable(f"something that is made later has {thing.name}")
        if kind.__module__.startswith("onnx_ir"):
            raise NotCacheable(f"something refers to an onnx_ir.{kind.__name__}")
        return NotImplemented

    def _value(self, value: ValueInfo) -> Any:
        """Return how to keep a value: a small weight as a view of the pool.

        A handle takes as long to make as all else, and few are asked for.
        """
        weight = value.weight
        if weight is None or is_packed(weight._dtype) or not is_small(weight):
            return NotImplemented
        return ValueInfo, (value.id, value.name, value.dtype, value.shape, weight.on(HOST))

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
        if start == 0 and shape == owner.shape and not is_small(owner):
            own = owner.array
            if dtype == own.dtype and strides == own.strides:
                return array_of, (owner,)
        number, place = self._stores.place_of(owner)
        return view_of, (number, place + start, dtype, shape, strides)


def _is_in_band(apart: list[pickle.PickleBuffer], buffer: pickle.PickleBuffer) -> bool:
    if buffer.raw().nbytes < MIN_OUT_OF_BAND_BYTES:
        return True
    apart.append(buffer)
    return False


def _dtype(dtype: np.dtype[Any]) -> Any:
    """Keep a dtype so that the same object comes back, as it is asked whether it is."""
    return np.dtype, (dtype.str,)


REDUCERS: dict[type, Any] = {
    **{type(np.dtype(kind)): _dtype for kind in "?bBhHiIlLqQefdFDgGO"},
    **admitted.REDUCERS,
}


def pickled(
    thing: Any,
    stores: Stores,
    options: SessionOptions,
    providers: Sequence[Provider],
    *,
    later: bool = False,
) -> tuple[bytes, list[memoryview]]:
    """Return the bytes of something, and what lies beside them; ``unpickling.loaded`` takes both.

    Args:
        thing: It.
        stores: Has no weights yet.
        options: As for ``Pickler``.
        providers: As for ``Pickler``.
        later: As for ``Pickler``.

    Raises:
        NotCacheable: Something of it cannot be cached.
    """
    try:
        content, apart = Pickler(stores, options, providers, later=later).pickled(thing)
    except NotCacheable:
        raise
    except Exception as error:  # of whatever class a plug-in's object likes
        raise NotCacheable(f"{type(error).__name__}: {error}") from error
    beside = [memoryview(stores.pool), *(each.raw() for each in apart)]
    return plain(stores.named()) + content, beside


def plain(values: Any) -> bytes:
    """Return the bytes of plain values."""
    return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
