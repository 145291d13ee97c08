"""A cuDNN of numpy's, which keeps descriptors and reads memory as they say."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import strict
from numpy.lib.stride_tricks import as_strided

from tenonnx_cuda.images.convolution_graph import ELEMENTS
from tenonnx_cuda.images.convolutions import Convolutions
from tenonnx_cuda.images.cudnn import ATTRIBUTES, DESCRIPTORS, FUNCTIONS, Backend

KINDS = {number: name for name, number in DESCRIPTORS.items()}
NAMES = {number: (name, kind) for name, (number, kind) in ATTRIBUTES.items()}
DTYPES = {number: dtype for dtype, number in ELEMENTS.items()}
NOT_SUPPORTED, FAILED = 3000, 5000


@dataclass
class Engine:
    """One way to do a graph.

    Attributes:
        milliseconds: What it takes.
        notes: Its numerical notes.
        behaviors: Its notes on behavior.
        workspace: Bytes that it wants.
        most: Operations of the graphs that it does.
        fails: Its plan is made, and cannot run.
    """

    milliseconds: float = 1.0
    notes: tuple[int, ...] = ()
    behaviors: tuple[int, ...] = ()
    workspace: int = 0
    most: int = 4
    fails: bool = False


@dataclass
class Described:
    """A descriptor: its kind, and attributes by their names without its prefix."""

    kind: str
    attributes: dict[str, Any] = field(default_factory=dict)
    done: bool = False


class Library:
    """What ``Backend`` asks of the shared library.

    Args:
        engines: What the first heuristics propose; the second one, nothing.

    Attributes:
        started: The engines whose plans ran, in order.
        alive: Descriptors that were not destroyed.
        clock: Milliseconds that they took.
    """

    def __init__(self, *engines: Engine) -> None:
        self.engines = engines or (Engine(),)
        self.started: list[Engine] = []
        self.alive: dict[int, Described] = {}
        self.clock = 0.0
        self.stream = 0
        self._numbers = itertools.count(1)
        for name in FUNCTIONS:
            words = re.findall("[A-Z][a-z]+", name.removeprefix("cudnnBackend"))
            setattr(self, name, Function(getattr(self, "_" + "_".join(words).lower())))
        self.cudnnGetErrorString = Function(lambda status: f"status {status}".encode())

    def _create(self, handle: Any) -> int:
        handle._obj.value = 0x5EED
        return 0

    def _set_stream(self, handle: Any, stream: int) -> int:
        assert handle.value == 0x5EED
        self.stream = stream
        return 0

    def _create_descriptor(self, kind: int, made: Any) -> int:
        made._obj.value = number = next(self._numbers)
        self.alive[number] = Described(KINDS[kind])
        return 0

    def _destroy_descriptor(self, address: Any) -> int:
        del self.alive[address.value]
        return 0

    def _set_attribute(self, address: Any, number: int, code: int, count: int, array: Any) -> int:
        described = self.alive[address.value]
        name, (expected, c_type) = NAMES[number]
        assert code == expected
        assert array._type_ is c_type
        assert not described.done
        prefix = described.kind.replace("BACKWARD", "BWD") + "_"
        assert name.startswith(prefix)
        values = list(array)
        assert len(values) == count
        if code == 15:
            values = [self.alive[value] for value in values]
            assert all(value.done for value in values), "parts are finalised first"
        described.attributes[name.removeprefix(prefix)] = values
        return 0

    def _finalize(self, address: Any) -> int:
        described = self.alive[address.value]
        described.done = True
        if described.kind == "EXECUTION_PLAN":
            (way,) = described.attributes["ENGINE_CONFIG"]
            graph = way.attributes["GRAPH"]
            return 0 if len(graph) <= way.attributes["ENGINE"].most else NOT_SUPPORTED
        if described.kind == "OPERATIONGRAPH":
            assert described.attributes["HANDLE"] == [0x5EED]
        return 0

    def _get_attribute(
        self, address: Any, number: int, code: int, most: int, count: Any, array: Any
    ) -> int:
        described, (name, (expected, _)) = self.alive[address.value], NAMES[number]
        assert code == expected
        values: Sequence[Any]
        if name == "ENGINEHEUR_RESULTS":
            (mode,), (graph,) = (described.attributes[n] for n in ("MODE", "OPERATION_GRAPH"))
            ways = self.engines if mode == 3 else ()
            for one, engine in zip(array, ways, strict=False):
                self.alive[one].done = True
                self.alive[one].attributes |= {"ENGINE": engine, "GRAPH": graph.attributes["OPS"]}
            count._obj.value = min(len(ways), most)
            return 0
        if name == "ENGINECFG_ENGINE":
            self.alive[array[0]].attributes["ENGINE"] = described.attributes["ENGINE"]
            values = [array[0]]
        elif name == "ENGINE_NUMERICAL_NOTE":
            values = described.attributes["ENGINE"].notes
        elif name == "ENGINE_BEHAVIOR_NOTE":
            values = described.attributes["ENGINE"].behaviors
        else:
            assert name == "EXECUTION_PLAN_WORKSPACE_SIZE"
            values = [described.attributes["ENGINE_CONFIG"][0].attributes["ENGINE"].workspace]
        count._obj.value = len(values)
        array[: len(values)] = values
        return 0

    def _execute(self, handle: Any, plan: Any, pack: Any) -> int:
        assert (handle.value, self.stream) == (0x5EED, 7), "on the session's stream"
        (way,) = self.alive[plan.value].attributes["ENGINE_CONFIG"]
        given = self.alive[pack.value].attributes
        engine = way.attributes["ENGINE"]
        if engine.fails:
            return FAILED
        assert (given["WORKSPACE"][0] is not None) == (engine.workspace > 0)
        self.started.append(engine)
        self.clock += engine.milliseconds
        compute(way.attributes["GRAPH"], dict(zip(*(given[n] for n in PACK), strict=True)))
        return 0


PACK = ("UNIQUE_IDS", "DATA_POINTERS")


class Function:
    """A function that takes argument types, as ctypes' do."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.argtypes: Any = None
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


def compute(operations: Sequence[Described], pointers: dict[int, int]) -> None:
    """Does a graph in float64, each operation on the result of the one before."""
    value: Any = None
    for position, operation in enumerate(operations):
        parts = {name: values[0] for name, values in operation.attributes.items()}
        if operation.kind == "OPERATION_POINTWISE":
            mode = parts["PW_DESCRIPTOR"].attributes
            assert mode["MATH_PREC"] == [0]
            if mode["MODE"] == [0]:
                value = value + memory(parts["BDESC"], pointers).astype(np.float64)
            else:
                assert (mode["MODE"], mode["NAN_PROPAGATION"]) == ([100], [1])
                value = np.where(value < 0, 0, value)
            result = parts["YDESC"]
        else:
            value, result = convolution(operation.kind, parts, pointers), parts.get("Y")
            result = result or parts["DX"]
        assert result.attributes["IS_VIRTUAL"] == [position < len(operations) - 1]
    y = memory(result, pointers)
    y[...] = value.astype(y.dtype)


def memory(tensor: Described, pointers: dict[int, int]) -> Any:
    """Returns the memory that a tensor is in."""
    given = tensor.attributes
    (address,) = (pointers[number] for number in given["UNIQUE_ID"])
    assert address % given["BYTE_ALIGNMENT"][0] == 0
    dtype, shape = DTYPES[given["DATA_TYPE"][0]], given["DIMENSIONS"]
    assert len(shape) >= 4
    steps = given["STRIDES"]
    span = sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + 1
    interface = {"version": 3, "data": (address, False), "shape": (span * dtype.itemsize,),
                 "typestr": "|u1"}  # fmt: skip
    flat = np.asarray(type("At", (), {"__array_interface__": interface})()).view(dtype)
    return as_strided(flat, shape, [dtype.itemsize * step for step in steps])


def convolution(kind: str, parts: dict[str, Any], pointers: dict[int, int]) -> Any:
    """Computes a convolution, or goes back through one."""
    how = parts["CONV_DESC"].attributes
    assert (parts["ALPHA"], parts["BETA"], how["COMP_TYPE"], how["CONV_MODE"]) == (1, 0, [0], [1])
    w = memory(parts["W"], pointers).astype(np.float64)
    back = kind.endswith("DATA")
    large = parts["DX" if back else "X"].attributes["DIMENSIONS"]
    small = parts["DY" if back else "Y"].attributes["DIMENSIONS"]
    padding = list(zip(how["PRE_PADDINGS"], how["POST_PADDINGS"], strict=True))
    assert how["SPATIAL_DIMS"] == [len(padding)]
    for n, m, k, stride, step, (low, high) in zip(
        large[2:], small[2:], w.shape[2:], how["FILTER_STRIDES"], how["DILATIONS"], padding,
        strict=True,
    ):  # fmt: skip
        assert (n + low + high - (k - 1) * step - 1) // stride + 1 == m
    groups = large[1] // w.shape[1]
    weights = w.reshape(groups, -1, *w.shape[1:])
    around = [(0, 0), (0, 0), *padding]
    whole = np.zeros([n + sum(p) for n, p in zip(large, around, strict=True)])
    inner = tuple(slice(a, a + n) for n, (a, _) in zip(large, around, strict=True))
    given = memory(parts["DY" if back else "X"], pointers).astype(np.float64)
    result = np.zeros((large[0], groups, weights.shape[1], *small[2:]))
    if not back:
        whole[inner] = given
    split = whole.reshape(large[0], groups, -1, *whole.shape[2:])
    for tap, where in taps(w.shape[2:], small[2:], how):
        factor = weights[(..., *tap)]
        if back:
            rows = given.reshape(large[0], groups, -1, *small[2:])
            split[(..., *where)] += np.einsum("ngm...,gmc->ngc...", rows, factor)
        else:
            result += np.einsum("ngc...,gmc->ngm...", split[(..., *where)], factor)
    return whole[inner] if back else result.reshape(small)


def taps(
    kernel: Sequence[int], output: Sequence[int], how: dict[str, Any]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    for tap in itertools.product(*map(range, kernel)):
        yield (
            tap,
            tuple(
                slice(t * step, t * step + (m - 1) * stride + 1, stride)
                for t, m, step, stride in zip(
                    tap, output, how["DILATIONS"], how["FILTER_STRIDES"], strict=True
                )
            ),
        )


def convolutions(library: Library) -> Convolutions:
    """Returns such a cuDNN on a device that is only thought of."""
    stream = SimpleNamespace(ptr=7, is_capturing=lambda: bool(strict.RECORDING))

    class Event:
        def record(self) -> None:
            self.time = library.clock

        def synchronize(self) -> None:
            assert not strict.RECORDING

    cuda = SimpleNamespace(
        get_current_stream=lambda: stream,
        Event=Event,
        get_elapsed_time=lambda before, after: after.time - before.time,
    )
    return Convolutions(SimpleNamespace(cuda=cuda, empty=strict.xp.empty), Backend(library))
