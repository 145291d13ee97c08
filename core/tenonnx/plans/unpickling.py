"""Plans from bytes: of what they name, only what ``admitted`` admits is made."""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.later import Later
from tenonnx.lazy_modules import onnx_ir as ir
from tenonnx.plans import Unkept
from tenonnx.plans.admitted import global_of
from tenonnx.plans.weights import Opened
from tenonnx.provider import HOST, HostDevice
from tenonnx.records import NamedTuple
from tenonnx.weights.storage import UINT8
from tenonnx.weights.weight import Weight

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions
    from tenonnx.plans.kept import Parts
    from tenonnx.plans.stand_ins import Graph, Node, Tensor, Value
    from tenonnx.provider import Provider


class Surroundings(NamedTuple):
    """The session's objects that an opened plan refers to.

    Attributes:
        stores: Where its weights lie.
        options: The session's.
        providers: The plan's, as soon as they are made.
        later: The pickles of what is made when it is asked for, and the arrays beside them.
        graph: The plan's values and nodes, a ``Graph``.
    """

    stores: Opened
    options: SessionOptions
    providers: list[Provider]
    later: Sequence[tuple[memoryview, Sequence[memoryview]]] = ()
    graph: Later = Later()


OPENING: ContextVar[Surroundings] = ContextVar("tenonnx_opening")


def weight_at(kind: str, name: Any, place: tuple[Any, ...]) -> Weight:
    """Returns a weight of the plan that is opened."""
    return OPENING.get().stores.weight(kind, name, place)


def weights_at(places: list[tuple[str, Any, tuple[Any, ...]]]) -> tuple[Weight, ...]:
    """Returns weights of the plan that is opened."""
    stores = OPENING.get().stores
    return tuple(stores.weight(*place) for place in places)


def tensor_at(kind: str, name: Any, place: tuple[Any, ...]) -> Tensor:
    """Returns the stand-in for a tensor, whose weight is of the plan that is opened."""
    from tenonnx.plans.stand_ins import Tensor  # for those who have some

    return Tensor(weight_at(kind, name, place))


def pooled(
    start: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> np.ndarray[Any, Any]:
    """Returns a view of the bytes of small weights."""
    return np.ndarray(shape, dtype, OPENING.get().stores.small, start, strides)


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
    own = weight.array
    if own.flags.c_contiguous and own.dtype.isbuiltin == 1 and start >= 0 and own.size:
        steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        if min(steps, default=0) >= 0 and start + sum(steps) + dtype.itemsize <= own.nbytes:
            return np.ndarray(shape, dtype, own, start, strides)
    storage = weight.storage
    first = weight.offset + start
    flat = weight._registry.view(storage, 0, storage.size, UINT8, (storage.size,))
    return np.ndarray(shape, dtype, flat.array, first, strides)


def element_type(name: str, number: int) -> Any:
    """Returns a member of an enumeration of onnx_ir's."""
    return ir.DataType(number) if name == "DataType" else ir.AttributeType(number)


def provider_at(number: int) -> Provider:
    """Returns a provider of the plan that is opened."""
    return OPENING.get().providers[number]


def later_at(number: int) -> Later:
    """Returns something of the plan that is opened which is not made yet."""
    surroundings = OPENING.get()
    return Later(make=lambda: loaded(*surroundings.later[number], surroundings))


def value_at(number: int) -> Value:
    """Returns a value of the plan that is opened."""
    return _graph().value(number)


def node_at(number: int) -> Node:
    """Returns a node of the plan that is opened."""
    return _graph().node(number)


def _graph() -> Graph:
    if (found := OPENING.get().graph.open()) is None:
        raise Unkept("the plan has no graph")
    return found  # type: ignore[no-any-return]  # it is one


def host() -> HostDevice:
    """Returns the host."""
    return HOST


class Unpickler(pickle.Unpickler):
    """Makes the parts of a plan; finds only names that ``admitted`` admits."""

    def find_class(self, module: str, name: str) -> Any:
        """Returns a class or function."""
        return global_of(module, name)


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise Unkept(f"{module}.{name} is no plain value")


def plain(content: bytes | memoryview) -> Any:
    """Returns plain values from a pickle."""
    return _Plain(io.BytesIO(content)).load()


def unpickled(
    content: bytes | memoryview, apart: Sequence[memoryview], surroundings: Surroundings
) -> tuple[Parts, Surroundings]:
    """Returns a plan's parts, and where there is what is made later.

    Raises:
        Unkept: They are not to be had here.
    """
    file, places = io.BytesIO(content), iter(apart)
    pool, derived, (own, *counts) = _Plain(file).load()
    surroundings.stores.require(derived)
    if pool:
        surroundings.stores.take_pool(pool, next(places))
    beside = list(itertools.islice(places, own))
    later = [(next(places), list(itertools.islice(places, count))) for count in counts]

    def graph() -> Graph:
        from tenonnx.plans.stand_ins import Graph  # for those who have some of it

        return Graph(lambda: loaded(*later[-1], surroundings))

    surroundings = surroundings._replace(later=later, graph=Later(make=graph))
    parts: Parts = _load(file, beside, surroundings)
    surroundings.providers[:] = parts.providers
    return parts, surroundings


def loaded(
    content: bytes | memoryview, apart: Sequence[memoryview], surroundings: Surroundings
) -> Any:
    """Returns the object whose bytes ``dumped`` returned.

    Raises:
        Unkept: It is not to be had here.
    """
    return _load(io.BytesIO(content), apart, surroundings)


def _load(file: io.BytesIO, apart: Sequence[memoryview], surroundings: Surroundings) -> Any:
    token = OPENING.set(surroundings)
    try:
        return Unpickler(file, buffers=apart).load()
    finally:
        OPENING.reset(token)
