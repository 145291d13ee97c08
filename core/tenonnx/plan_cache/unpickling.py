"""Plans from bytes: of what they name, only what ``admitted`` admits is made."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.errors import Fail
from tenonnx.plan_cache import NotCacheable
from tenonnx.plan_cache.admitted import global_of
from tenonnx.plan_cache.weights import Opened
from tenonnx.process.later import Later
from tenonnx.weights.weight import Weight

if TYPE_CHECKING:
    from tenonnx.interface.session_info import SessionParts
    from tenonnx.operators import OperatorTable
    from tenonnx.options import SessionOptions
    from tenonnx.plan_cache.files import File
    from tenonnx.provider import Device, Provider
    from tenonnx.weights.mapping import Mapping as Mapped
    from tenonnx.weights.registry import WeightRegistry


# The plan that is being opened.
OPENED: ContextVar[Opened] = ContextVar("tenonnx_opening")


@cacheable
def weight_at(*place: Any) -> Weight:
    """Return a weight of the plan that is opened."""
    return OPENED.get().weight(*place)


@cacheable
def array_of(weight: Weight) -> np.ndarray[Any, Any]:
    """Return a weight's array."""
    return weight.array


@cacheable
def view_of(
    number: int,
    offset: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
) -> np.ndarray[Any, Any]:
    """Return a view of a storage that weights of the plan that is opened lie in.

    Raises:
        ValueError, TypeError: Numpy says that it ends outside.
    """
    flat = OPENED.get().flat(number)
    return np.ndarray(shape, dtype, flat, offset, strides)


@cacheable
def session_options() -> SessionOptions:
    """Return the options of the session that opens a plan."""
    return OPENED.get().options


@cacheable
def device_of(provider: type[Provider]) -> Device:
    """Return the device that all providers of a class have."""
    return provider.device


@cacheable
def later_of(content: bytes | memoryview, arrays: Sequence[bytes | memoryview]) -> Later:
    """Return something of the plan that is opened which is not made yet.

    Args:
        content: A pickle of it.
        arrays: What lies beside that.
    """
    opened = OPENED.get()

    def make() -> Any:
        try:
            return _load(io.BytesIO(content), arrays, opened)
        except Exception as error:  # of whatever class a damaged pickle likes
            raise Fail(
                f"the plan that was cached cannot be used: {error}",
                hint="delete it: tenonnx cache --clear",
            ) from error

    return Later(make=make)


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


def loaded(
    file: File, mapped: Mapping[str, Mapped], options: SessionOptions, registry: WeightRegistry
) -> Any:
    """Return the object whose bytes ``pickling.pickled`` returned.

    Args:
        file: Has them.
        mapped: The files that weights lie in, by the paths that the pickle has.
        options: The session's.
        registry: Where weights are to be.

    Raises:
        NotCacheable: It is not to be had here; so may whatever an object of it raises.
    """
    content, (pool, *arrays) = io.BytesIO(file.parts), file.apart
    return _load(content, arrays, Opened(options, registry, mapped, _Plain(content).load(), pool))


def session_parts(
    file: File, mapped: Mapping[str, Mapped], options: SessionOptions, registry: WeightRegistry
) -> SessionParts:
    """Return a session's parts, whose providers have what sessions give them, as ``loaded``."""
    parts: SessionParts = loaded(file, mapped, options, registry)
    for provider in parts.providers:
        provider.__dict__["look_up"] = functools.partial(_operators, provider, options)
        if why := provider.reopened():
            raise NotCacheable(why)
    return parts


def _operators(provider: Provider, options: SessionOptions) -> OperatorTable:
    from tenonnx.plugins.choosing import operators_for

    return operators_for(type(provider), options)


def _load(file: io.BytesIO, arrays: Sequence[bytes | memoryview], opened: Opened) -> Any:
    token = OPENED.set(opened)
    try:
        return Unpickler(file, buffers=arrays).load()
    finally:
        OPENED.reset(token)
