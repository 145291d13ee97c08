"""Traces of runs, for chrome://tracing and Perfetto, with onnxruntime's event and field names."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tenonnx.errors import Fail
from tenonnx.graph.type_names import element_name
from tenonnx.interface.value_types import onnx_type
from tenonnx.provider import HOST, Step

if TYPE_CHECKING:
    from tenonnx.graph.values import ValueInfo
    from tenonnx.planning.plan import Plan
    from tenonnx.plugins.manager import PluginSet

Event = dict[str, Any]

NOT_OF_A_RUN: Final[dict[ValueInfo, Any]] = {}


class Places:
    """On which devices the values of a run are, as the plan moves them: once to each."""

    def __init__(self) -> None:
        self._of: dict[ValueInfo, set[str]] = {}
        self._entered: set[ValueInfo] = set()

    def made(self, step: Step) -> None:
        """Note where a step leaves its outputs."""
        for value in step.outputs:
            self._of[value] = {step.device_of_outputs.id}

    def iterated(self) -> None:
        """Forget what a body was entered with: it has other values now."""
        for value in self._entered:
            del self._of[value]
        self._entered.clear()

    def moves(self, value: ValueInfo, device: str) -> bool:
        """Return whether a value must be copied to be on a device, where it is from then on."""
        if value not in self._of:
            self._of[value] = {HOST.id}
            self._entered.add(value)
        there = self._of[value]
        missing = device not in there
        there.add(device)
        return missing


class Profiler:
    """An observer that notes what every step takes.

    Args:
        plan: Says who runs what.
        plugins: Say whose the providers are.
        start_ns: When the session's building began, on the performance counter.
        loaded_ns: When the model was loaded.
        built_ns: When the session was built.
        source: ``uri`` if the model came from a file, ``array`` if from memory.

    Attributes:
        start_ns: When profiling started, in nanoseconds since 1970.
    """

    def __init__(
        self,
        plan: Plan,
        plugins: PluginSet,
        start_ns: int,
        loaded_ns: int,
        built_ns: int,
        source: str,
    ) -> None:
        self._zero = start_ns
        self.start_ns = time.time_ns() - (time.perf_counter_ns() - start_ns)
        self._events: list[Event] = []
        self._local = threading.local()
        placement = plan.placement
        self._inputs = tuple(value for value, _ in plan.program.inputs)
        self._outputs = plan.program.outputs
        self._index = {a.node: i for i, a in enumerate(placement)}
        self._providers = {a.node: a.provider for a in placement}
        self._owners = {
            name: plugins.owner("provider", name) for name in set(self._providers.values())
        }
        self._main = placement.preferred
        self._note("Session", f"model_loading_{source}", start_ns, loaded_ns)
        self._note("Session", "session_initialization", loaded_ns, built_ns)

    def on_step(self, step: Step | None, start_ns: int, outputs: tuple[Any, ...]) -> None:
        """Note a step."""
        end_ns = time.perf_counter_ns()
        known = getattr(self._local, "known", NOT_OF_A_RUN)
        places = self._local.places if known is not NOT_OF_A_RUN else Places()
        if step is None:
            places.iterated()
            return
        node = step.nodes[0]
        index = self._index.get(node, -1)
        made = [_describe(output) for output in outputs]
        read = [_of_value(value, known) for value in step.inputs if value is not None]
        provider = self._providers.get(node, self._main)
        self._note(
            "Node",
            f"{node.name or f'{node.op_type}_{index}'}_kernel_time",
            start_ns,
            end_ns,
            op_name=" + ".join(n.op_type for n in step.nodes),
            node_index=str(index),
            provider=provider,
            plugin=self._owners.get(provider, ""),
            kernel=kernel_name(step.call),
            parameter_size=str(sum(size for _, size, weight in read if weight)),
            activation_size=str(sum(size for _, size, weight in read if not weight)),
            output_size=str(sum(size for _, size in made)),
            copied_size=str(_copied(step, known, places)),
            input_type_shape=[kind for kind, _, _ in read if kind],
            output_type_shape=[kind for kind, _ in made if kind],
        )
        if known is not NOT_OF_A_RUN:
            known.update(zip(step.outputs, made, strict=False))
            places.made(step)
            # Describing the arrays takes longer than many a kernel; the trace states it apart.
            self._local.watching += time.perf_counter_ns() - end_ns

    @contextlib.contextmanager
    def run(self, inputs: Sequence[Any]) -> Iterator[None]:
        """Note a run, which the block is."""
        start = time.perf_counter_ns()
        described = map(_describe, inputs)
        known = dict(zip(self._inputs, described, strict=True))
        self._local.known, places = known, Places()
        self._local.places, self._local.watching = places, 0
        begun = time.perf_counter_ns()
        try:
            yield
        finally:
            self._local.known = NOT_OF_A_RUN
            end = time.perf_counter_ns()
            self._note("Session", "SequentialExecutor::Execute", begun, end)
            fetched = [value for value in self._outputs if value in known]
            copied = sum(known[value][1] for value in fetched if places.moves(value, HOST.id))
            more = {"copied_size": str(copied), "watching_us": str(self._local.watching / 1000)}
            self._note("Session", "model_run", start, end, **more)

    def _note(self, kind: str, name: str, start_ns: int, end_ns: int, **args: Any) -> None:
        self._events.append(
            {
                "cat": kind,
                "pid": os.getpid(),
                "tid": threading.get_native_id(),
                "dur": (end_ns - start_ns) / 1000,  # microseconds, as all times of the format
                "ts": (start_ns - self._zero) / 1000,
                "ph": "X",
                "name": name,
                "args": args,
            }
        )

    @property
    def events(self) -> list[Event]:
        """The events so far, in the trace format."""
        return list(self._events)

    def write(self, prefix: str) -> str:
        """Write the trace; return its path: the prefix with date and time.

        Raises:
            Fail: It cannot be written.
        """
        now = datetime.now()
        path = f"{prefix}_{now:%Y-%m-%d_%H-%M-%S}_{now.microsecond // 1000:03}.json"
        try:
            with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - a prefix, no path
                json.dump(self.events, file)
        except OSError as error:
            raise Fail(f"cannot write the profile {path}: {error.strerror}") from error
        return path


def kernel_name(call: Callable[..., Any]) -> str:
    """Name the function behind a step: ``tenonnx_array.conv.conv``, ``numpy.add``.

    A function that another one made has that one's name.
    """
    while (inner := _within(call)) is not None:
        call = inner
    if isinstance(call, np.ufunc):
        return f"numpy.{call.__name__}"
    owner = call if hasattr(call, "__qualname__") else type(call)
    outer, _, _ = owner.__qualname__.partition(".<locals>.")
    return f"{owner.__module__}.{outer}"


def _within(call: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the function inside a ``functools.partial``, a decorated one or a replay."""
    # Machine code that replays a step has its function in its self.
    within = getattr(call, "__self__", None)
    for holder, name in ((call, "func"), (call, "__wrapped__"), (within, "__wrapped__")):
        if callable(inner := getattr(holder, name, None)):
            return inner  # type: ignore[no-any-return]  # it is callable
    return None


def _describe(value: Any) -> tuple[dict[str, list[int]], int]:
    """Return a tensor's type and shape, and its bytes; nothing of other values."""
    if getattr(value, "dtype", None) is None:
        return {}, 0
    return {element_name(onnx_type(value).name): list(value.shape)}, int(value.nbytes)


def _of_value(value: ValueInfo, known: Any) -> tuple[dict[str, list[int]], int, bool]:
    """Return type and shape, bytes, and whether the value is a weight."""
    constant = value.constant
    if constant is not None and value not in known:
        if isinstance(constant, np.ndarray):
            return *_describe(constant), True
        kind = {element_name(constant.dtype.name): list(constant.shape)}
        return kind, constant.nbytes, True
    kind, size = known.get(value, ({}, 0))
    return kind, size, False


def _copied(step: Step, known: dict[ValueInfo, Any], places: Places) -> int:
    """Return the bytes of a step's inputs that were brought from another device for it."""
    copied = 0
    for position, value in enumerate(step.inputs):
        if value in known and places.moves(value, step.device_of_input(position).id):
            copied += known[value][1]
    return copied
