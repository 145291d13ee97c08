"""Plans from bytes: of what they name, only what ``admitted`` admits is made."""

from __future__ import annotations

import functools
import io
import itertools
import pickle
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.errors import Fail
from tenonnx.plan_cache import NotCacheable
from tenonnx.plan_cache.admitted import global_of
from tenonnx.plan_cache.weights import Opened
from tenonnx.process.later import Later
from tenonnx.provider import HOST, HostDevice
from tenonnx.weights.storage import UINT8
from tenonnx.weights.weight import Weight

if TYPE_CHECKING:
    from tenonnx.interface.session_info import SessionParts
    from tenonnx.operators import OperatorTable
    from tenonnx.options import SessionOptions
    from tenonnx.provider import Device, Provider
    from tenonnx.weights.mapping import Mapping as File
    from tenonnx.weights.registry import WeightRegistry


class Surroundings(NamedTuple):
    """The session's objects that an opened plan refers to.

    Attributes:
        stores: Where its weights lie.
        options: The session's.
        providers: The plan's, as soon as they are made.
        later: The pickles of what is made when it is asked for, and the arrays beside them.
    """

    stores: Opened
    options: SessionOptions
    providers: list[Provider]
    later: Sequence[tuple[memoryview, Sequence[memoryview]]] = ()


LOADED_SURROUNDINGS: ContextVar[Surroundings] = ContextVar("tenonnx_opening")


@cacheable
def weight_at(kind: str, name: Any, place: tuple[Any, ...]) -> Weight:
    """Return a weight of the plan that is opened."""
    return LOADED_SURROUNDINGS.get().stores.weight(kind, name, place)


@cacheable
def weights_at(places: list[tuple[str, Any, tuple[Any, ...]]]) -> tuple[Weight, ...]:
    """Return weights of the plan that is opened."""
    stores = LOADED_SURROUNDINGS.get().stores
    return tuple(stores.weight(*place) for place in places)


@cacheable
def pooled(
    start: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> np.ndarray[Any, Any]:
    """Return a view of the bytes of small weights."""
    return np.ndarray(shape, dtype, LOADED_SURROUNDINGS.get().stores.small, start, strides)


@cacheable
def session_options() -> SessionOptions:
    """Return the options of the session that opens a plan."""
    return LOADED_SURROUNDINGS.get().options


@cacheable
def of_weight(weight: Weight) -> np.ndarray[Any, Any]:
    """Return a weight's array."""
    return weight.array


@cacheable
def inside(
    weight: Weight,
    start: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> np.ndarray[Any, Any]:
    """Return another view of the memory that a weight lies in."""
    own = weight.array
    if own.flags.c_contiguous and own.dtype.isbuiltin == 1 and start >= 0 and own.size:
        steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        if min(steps, default=0) >= 0 and start + sum(steps) + dtype.itemsize <= own.nbytes:
            return np.ndarray(shape, dtype, own, start, strides)
    storage = weight.storage
    first = weight.offset + start
    flat = weight._registry.view(storage, 0, storage.size, UINT8, (storage.size,))
    return np.ndarray(shape, dtype, flat.array, first, strides)


@cacheable
def provider_at(number: int) -> Provider:
    """Return a provider of the plan that is opened."""
    return LOADED_SURROUNDINGS.get().providers[number]


@cacheable
def device_of(provider: type[Provider]) -> Device:
    """Return the device that all providers of a class have."""
    return provider.device


@cacheable
def later_at(number: int) -> Later:
    """Return something of the plan that is opened which is not made yet."""
    surroundings = LOADED_SURROUNDINGS.get()

    def make() -> Any:
        try:
            return loaded(*surroundings.later[number], surroundings)
        except Exception as error:  # of whatever class a damaged pickle likes
            raise Fail(
                f"the plan that was cached cannot be used: {error}",
                hint="delete it: tenonnx cache --clear",
            ) from error

    return Later(make=make)


@cacheable
def host() -> HostDevice:
    """Return the host."""
    return HOST


def revived(
    content: memoryview,
    apart: Sequence[memoryview],
    mapped: Mapping[str, File],
    options: SessionOptions,
    registry: WeightRegistry,
) -> tuple[SessionParts, Surroundings]:
    """Return a session's parts, whose providers have what sessions give them; and what they found.

    Args:
        content: A pickle of them.
        apart: The arrays beside it.
        mapped: The files that weights lie in, by the paths that the pickle has.
        options: The session's.
        registry: Where weights are to be.

    Raises:
        NotCacheable: They cannot be used here; so may whatever an object of theirs raises.
    """
    found = Surroundings(Opened(registry, dict(mapped)), options, [])
    parts, found = unpickled(content, apart, found)
    for provider in parts.providers:
        provider.__dict__["look_up"] = functools.partial(_operators, provider, options)
        if why := provider.reopened():
            raise NotCacheable(why)
    return parts, found


def _operators(provider: Provider, options: SessionOptions) -> OperatorTable:
    from tenonnx.plugins.choosing import operators_for  # few runs ask, and plug-ins are imported

    return operators_for(type(provider), options)


class Unpickler(pickle.Unpickler):
    """An unpickler of a plan's parts that finds only names which ``admitted`` admits."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function."""
        return global_of(module, name)


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise NotCacheable(f"{module}.{name} is no plain value")


def plain(content: bytes | memoryview) -> Any:
    """Return plain values from a pickle."""
    return _Plain(io.BytesIO(content)).load()


def unpickled(
    content: bytes | memoryview, apart: Sequence[memoryview], surroundings: Surroundings
) -> tuple[SessionParts, Surroundings]:
    """Return a plan's parts, and where there is what is made later.

    Raises:
        NotCacheable: They are not to be had here.
    """
    file, places = io.BytesIO(content), iter(apart)
    pool, derived, (own, *counts) = _Plain(file).load()
    surroundings.stores.require(derived)
    if pool:
        surroundings.stores.take_pool(pool, next(places))
    beside = list(itertools.islice(places, own))
    later = [(next(places), list(itertools.islice(places, count))) for count in counts]

    surroundings = surroundings._replace(later=later)
    parts: SessionParts = _load(file, beside, surroundings)
    surroundings.providers[:] = parts.providers
    return parts, surroundings


def loaded(
    content: bytes | memoryview, apart: Sequence[memoryview], surroundings: Surroundings
) -> Any:
    """Return the object whose bytes ``dumped`` returned.

    Raises:
        NotCacheable: It is not to be had here.
    """
    return _load(io.BytesIO(content), apart, surroundings)


def _load(file: io.BytesIO, apart: Sequence[memoryview], surroundings: Surroundings) -> Any:
    token = LOADED_SURROUNDINGS.set(surroundings)
    try:
        return Unpickler(file, buffers=apart).load()
    finally:
        LOADED_SURROUNDINGS.reset(token)
