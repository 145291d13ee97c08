"""A cuDNN of numpy's, which keeps descriptors and reads memory as they say."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import strict
from cudnn_arithmetic import Described, compute

from tenonnx_cuda.cudnn.descriptors import CUDNN_ATTRIBUTES, CUDNN_FUNCTIONS, DESCRIPTORS, Backend
from tenonnx_cuda.cudnn.plans import Cudnn

KINDS = {number: name for name, number in DESCRIPTORS.items()}
NAMES = {number: (name, kind) for name, (number, kind) in CUDNN_ATTRIBUTES.items()}
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
        serves_all: It has kernels that are compiled once, for all lengths.
    """

    milliseconds: float = 1.0
    notes: tuple[int, ...] = ()
    behaviors: tuple[int, ...] = ()
    workspace: int = 0
    most: int = 40
    fails: bool = False
    serves_all: bool = True


class Library:
    """The functions of the shared library that ``Backend`` calls.

    Args:
        engines: What the first heuristics propose; the second one, nothing.

    Attributes:
        started: The engines whose plans ran, in order.
        compiled: Descriptors that kernels were compiled into: of caches, and of plans.
        alive: Descriptors that were not destroyed.
        clock: Milliseconds that they took.
    """

    def __init__(self, *engines: Engine) -> None:
        self.engines = engines or (Engine(),)
        self.started: list[Engine] = []
        self.compiled: list[Described] = []
        self.alive: dict[int, Described] = {}
        self.clock = 0.0
        self.stream = 0
        self._numbers = itertools.count(1)
        for name in CUDNN_FUNCTIONS:
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
            assert all(value.done for value in values), "parts are finalized first"
        described.attributes[name.removeprefix(prefix)] = values
        return 0

    def _finalize(self, address: Any) -> int:
        described = self.alive[address.value]
        described.done = True
        if described.kind == "EXECUTION_PLAN":
            way = described["ENGINE_CONFIG"]
            (kernels,) = described.attributes.get("KERNEL_CACHE", [described])
            if kernels not in self.compiled:
                self.compiled.append(kernels)
            fits = len(way.attributes["GRAPH"]) <= way.attributes["ENGINE"].most
            return 0 if fits else NOT_SUPPORTED
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
            graph, some = described["OPERATION_GRAPH"], described["MODE"] == 3
            every = "IS_DYNAMIC_SHAPE_ENABLED" in graph.attributes
            ways = [e for e in self.engines if some and (e.serves_all or not every)]
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


def cudnn(library: Library) -> Cudnn:
    """Return such a cuDNN on a simulated device."""
    stream = SimpleNamespace(ptr=7, is_capturing=lambda: bool(strict.CAPTURING))

    class Event:
        def record(self) -> None:
            self.time = library.clock

        def synchronize(self) -> None:
            assert not strict.CAPTURING

    cuda = SimpleNamespace(
        get_current_stream=lambda: stream,
        Event=Event,
        get_elapsed_time=lambda before, after: after.time - before.time,
    )
    return Cudnn(SimpleNamespace(cuda=cuda, empty=strict.xp.empty), Backend(library))
