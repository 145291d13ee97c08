"""Plans as bytes: pickles that hold no code, and name none but that of plug-ins."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Sequence
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenonnx.later import Later
from tenonnx.plans import Unkept, by_reference, stand_ins
from tenonnx.plans.admitted import NAMES, global_of, require
from tenonnx.plans.stand_ins import GraphFacts
from tenonnx.plans.unpickling import (
    element_type,
    host,
    inside,
    later_at,
    node_at,
    of_weight,
    pooled,
    provider_at,
    session_options,
    tensor_at,
    value_at,
    weight_at,
    weights_at,
)
from tenonnx.plans.weights import Stores
from tenonnx.provider import HostDevice
from tenonnx.weights.storage import root
from tenonnx.weights.weight import Weight

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions
    from tenonnx.plans.kept import Parts
    from tenonnx.provider import Provider

APART = 16 << 10
"""Bytes of an array from which on it lies beside the pickle, and is mapped."""


Pickled: TypeAlias = tuple[bytes, list[pickle.PickleBuffer]]
"""Bytes, and large arrays beside them."""


class Pickler(pickle.Pickler):
    """Pickles the parts of a plan.

    Args:
        stores: Takes the weights.
        options: The session's, which whoever opens the plan has, too.
        providers: The session's.
        later: Takes the pickles of what is made when it is asked for, and arrays beside them.
            ``None`` for one of these, and whatever else is opened when there are providers.
        graph: Takes the values and nodes; ``None`` where they are kept with what has them.

    Attributes:
        apart: Large arrays.
    """

    def __init__(
        self,
        stores: Stores,
        options: SessionOptions,
        providers: Sequence[Provider],
        later: list[Pickled] | None = None,
        graph: GraphFacts | None = None,
    ) -> None:
        self._file, self.apart = io.BytesIO(), list[pickle.PickleBuffer]()
        beside = functools.partial(_is_small, self.apart)
        super().__init__(self._file, pickle.HIGHEST_PROTOCOL, buffer_callback=beside)
        self._stores, self._options = stores, options
        self._providers, self._later, self._graph = providers, later, graph
        self._numbers = {id(each): number for number, each in enumerate(providers)}

    def pickled(self, thing: Any) -> Pickled:
        """Returns the bytes of something, and the large arrays beside them."""
        self.dump(thing)
        return self._file.getvalue(), self.apart

    def reducer_override(self, thing: Any) -> Any:
        """Returns how to keep an object; ``NotImplemented`` if as pickle would."""
        kind = type(thing)
        if kind is Weight:
            return weight_at, self._stores.reference(thing)
        if kind is stand_ins.Tensor and thing.weight is not None:
            return tensor_at, self._stores.reference(thing.weight)
        if kind is Later:
            return self._put_off(thing.open())
        if kind is _Weights:
            return weights_at, ([self._stores.reference(weight) for weight in thing.weights],)
        if self._later is None and (number := self._numbers.get(id(thing))) is not None:
            return provider_at, (number,)
        if kind is np.ndarray:
            return self._array(thing)
        if (reduced := REDUCERS.get(kind)) is not None:
            return reduced(thing)
        if thing is self._options:
            return session_options, ()
        if isinstance(thing, type):
            if global_of(thing.__module__, thing.__qualname__) is not thing:
                raise Unkept(f"{thing!r} is not what its module calls so")
            return NotImplemented
        return self._of_ir(thing) if kind.__module__.startswith("onnx_ir") else NotImplemented

    def _put_off(self, thing: Any) -> Any:
        """Pickles something by itself."""
        if self._later is None:
            return Later, (thing,)
        if type(thing) is tuple and all(type(each) is Weight for each in thing):
            thing = _Weights(thing)
        pickler = Pickler(self._stores, self._options, self._providers, graph=self._graph)
        self._later.append(pickler.pickled(thing))
        return later_at, (len(self._later) - 1,)

    def _array(self, array: np.ndarray[Any, Any]) -> Any:
        """Returns how to keep an array: a weight's by where it lies."""
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

    def _of_ir(self, thing: Any) -> Any:
        """Returns a stand-in for a part of a graph."""
        name = type(thing).__name__
        if name == "Value":
            if self._graph is not None:
                return value_at, (self._graph.values.number(thing),)
            return stand_ins.Value, stand_ins.of_value(thing)
        if name == "Node":
            if self._graph is not None:
                return node_at, (self._graph.nodes.number(thing),)
            return stand_ins.Node, stand_ins.of_node(thing)
        if name in ("DataType", "AttributeType"):
            return element_type, (name, int(thing))
        raise Unkept(f"something refers to an onnx_ir.{name}")


def _is_small(apart: list[pickle.PickleBuffer], buffer: pickle.PickleBuffer) -> bool:
    if buffer.raw().nbytes < APART:
        return True
    apart.append(buffer)
    return False


class _Weights:
    """Many weights, whose places are written as one list."""

    def __init__(self, weights: tuple[Weight, ...]) -> None:
        self.weights = weights


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


def _dtype(dtype: np.dtype[Any]) -> Any:
    """Keeps a dtype so that the same object comes back, as it is asked whether it is."""
    return np.dtype, (dtype.str,)


REDUCERS: dict[type, Any] = {
    **{type(np.dtype(kind)): _dtype for kind in "?bBhHiIlLqQefdFDgGO"},
    np.ufunc: by_reference.reduced_numpy,
    type(np.stack): by_reference.reduced_numpy,
    BuiltinFunctionType: _builtin,
    CellType: by_reference.reduced_cell,
    FunctionType: _function,
    HostDevice: _host,
    GraphFacts: lambda graph: (tuple, (graph.facts(),)),
    MethodType: by_reference.reduced_method,
    ModuleType: _module,
    by_reference.LRU: by_reference.reduced_cache,
    object: by_reference.reduced_sentinel,
}


def pickled(parts: Parts, stores: Stores, options: SessionOptions) -> Pickled:
    """Returns the bytes of a plan's parts, and what lies beside them.

    Raises:
        Unkept: Something of it cannot be kept.
    """
    later, graph, apart = list[Pickled](), GraphFacts(), list[pickle.PickleBuffer]()
    providers = parts.providers
    main, beside = dumped(Pickler(stores, options, providers, later, graph), parts)
    later.append(dumped(Pickler(stores, options, providers, graph=graph), graph))
    name, small = stores.pool.close()
    if small:
        apart.append(pickle.PickleBuffer(small))
    apart += beside
    for content, arrays in later:
        apart += [pickle.PickleBuffer(content), *arrays]
    counts = tuple(len(arrays) for _, arrays in [(main, beside), *later])
    return pickle.dumps((small and name, stores.derived(), counts)) + main, apart


def dumped(pickler: Pickler, thing: Any) -> Pickled:
    """Returns the bytes of something, and large arrays beside them.

    Raises:
        Unkept: Something of it cannot be kept.
    """
    try:
        return pickler.pickled(thing)
    except Unkept:
        raise
    except Exception as error:  # of whatever class a plug-in's object likes
        raise Unkept(f"{type(error).__name__}: {error}") from error
