"""One call on the run path, and the memory that its inputs and outputs are in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.graph.values import GraphInfo, NodeInfo, ValueInfo, node_info, value_info
from tenonnx.operators import Host

if TYPE_CHECKING:
    import onnx_ir as ir


class Device(Protocol):
    """A memory for arrays. Two devices with the same ``id`` are the same memory.

    Attributes:
        id: The device's type and number: ``cpu``, ``cuda:0``.
    """

    id: str

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the device's array for a numpy array, of the same shape and dtype.

        Args:
            array: Any shape, strides and dtype that ONNX has; read-only if it is a weight.
        """

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the numpy array for a device's array, of the same shape and dtype."""

    def stack(self, arrays: list[Any], axis: int) -> Any:
        """Join the device's arrays along a new axis, as ``numpy.stack`` does.

        Args:
            arrays: One or more, of one shape and dtype.
            axis: Where the new axis is in the result.
        """


class HostDevice:
    """The process's own memory, where arrays are numpy's and moving them is free."""

    id = "cpu"

    def upload(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the array itself."""
        return array

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the array itself."""
        return array  # type: ignore[no-any-return]  # whatever lives here is already numpy's

    def stack(self, arrays: list[Any], axis: int) -> np.ndarray[Any, Any]:
        """Join arrays of one shape along a new axis."""
        if axis == 0 and not arrays[0].dtype.hasobject:
            return np.array(arrays)  # a fourth of what np.stack takes for small ones
        return np.stack(arrays, axis)


HOST = HostDevice()


@cacheable
class Step:
    """One call on the run path: ``outputs = call(*inputs)``.

    Values and nodes of a graph are given as they are; the step refers to what a plan knows of them.

    Attributes:
        call: Takes the inputs in order; returns the output, or a tuple when ``multiple``.
            A function of a module, a ``functools.partial`` of one, or an instance of a class of
            one, with ``tenonnx.cacheable``: other plans are not cached for later processes.
        inputs: Values the call takes; ``None`` is passed for an absent optional one.
        outputs: Values the call produces; unused ones are dropped.
        nodes: The nodes of the step; errors and profiles name them. Those of its parts if none are
            given.
        multiple: The call returns a tuple.
        device: The device of inputs and outputs.
        host: Inputs (by position, or all) that the call takes as numpy arrays instead.
        host_output: The outputs are on the host instead.
        bodies: Graph attributes of the node, for a step of one node, that the call takes as
            keywords, each a ``Body``.
        parts: Single steps with the same results, for runs with observers and for runs of some
            outputs. An error has the failed one as its attribute ``step``. If none are given, they
            are the ``single_steps`` of the call, or of the object whose method it is.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        inputs: Iterable[ir.Value | ValueInfo | None],
        outputs: Iterable[ir.Value | ValueInfo],
        nodes: Iterable[ir.Node | NodeInfo] = (),
        multiple: bool = False,
        device: Device = HOST,
        host: Host = (),
        host_output: bool = False,
        bodies: tuple[str, ...] = (),
        parts: tuple[Step, ...] = (),
    ) -> None:
        self.call = call
        self.inputs = tuple(map(value_info, inputs))
        self.outputs = tuple(map(value_info, outputs))
        self.multiple, self.device = multiple, device
        self.host, self.host_output, self.bodies = host, host_output, bodies
        self._nodes, self._parts = tuple(map(node_info, nodes)), parts

    @property
    def parts(self) -> tuple[Step, ...]:
        """Single steps with the same results; none of a step that is one."""
        return self._parts or getattr(owner_of(self.call), "single_steps", ())

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """The nodes of the step."""
        return self._nodes or tuple(node for part in self.parts for node in part.nodes)

    def replaced(self, **changes: Any) -> Step:
        """Return the same step with other attributes; values and nodes are infos."""
        made = object.__new__(Step)
        private = {"nodes": "_nodes", "parts": "_parts"}
        vars(made).update(vars(self))
        vars(made).update((private.get(name, name), each) for name, each in changes.items())
        return made

    def called(self, call: Callable[..., Any]) -> Step:
        """Return the same step with another call."""
        return self.replaced(call=call)

    def device_of_input(self, position: int) -> Device:
        """Return the device of an input."""
        return HOST if self.host == "all" or position in self.host else self.device

    @property
    def device_of_outputs(self) -> Device:
        """Return the device of the outputs."""
        return HOST if self.host == "all" or self.host_output else self.device


@dataclass(frozen=True)
class Body:
    """A graph attribute, as the kernel of an operator that is not ai.onnx's control flow gets it.

    Attributes:
        graph: Its name, inputs and outputs.
        function: Takes the graph's inputs and returns a tuple of its outputs, where the step's
            own inputs and outputs are. It may be called while the step runs, any number of times.
    """

    graph: GraphInfo
    function: Callable[..., tuple[Any, ...]]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the graph once."""
        return self.function(*inputs)


def owner_of(call: Callable[..., Any]) -> Any:
    """Return the object whose method a call is; any other call itself."""
    return getattr(call, "__self__", call)
