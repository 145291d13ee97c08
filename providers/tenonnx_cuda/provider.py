"""The CUDA provider: the operator library over cupy, and kernels where cupy is slow.

Whoever lists providers imports this module, so what sessions alone need is imported by them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast

import numpy as np

from tenonnx.graph.traits import VIEWS
from tenonnx.provider import HOST, Device
from tenonnx_array.provider import ArrayProvider
from tenonnx_cuda.device import CudaDevice
from tenonnx_cuda.options import CudaOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.operators import Kernel, Namespace, OperatorTable
    from tenonnx.options import SessionOptions
    from tenonnx.provider import Segment, Step
    from tenonnx_cuda.kernel_selection import Target
    from tenonnx_cuda.platform import Platform, Stream


# Operators whose results are parts of arrays that they read, or copies; an Identity's may be a
# sequence.
RETURNS_PARTS: Final = VIEWS - {"Identity"} | {"Slice", "Split", "Transpose"}

# Elements of a constant that is taken for a shape, or an index into one.
LARGEST_SHAPE: Final = 64


class CUDAExecutionProvider(ArrayProvider):
    """The provider of an NVIDIA GPU, on a stream of the session's own."""

    name: ClassVar[str] = "CUDAExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("cuda", "gpu")
    Options: ClassVar[type | None] = CudaOptions
    device: Device = cast("Device", SimpleNamespace(id="cuda"))  # before one is chosen
    unasked: ClassVar[bool] = False  # a GPU's memory is often somebody else's

    def __init__(
        self,
        options: Any = None,
        operators: OperatorTable | None = None,
        session_options: SessionOptions | None = None,
    ) -> None:
        from tenonnx_cuda.weights.device_weights import device_weights_on

        super().__init__(options or CudaOptions(), operators, session_options)
        chosen: CudaOptions = self.options
        self.platform = self.connect(chosen.device_id)
        self.stream = self.platform.stream(
            chosen.gpu_mem_limit, chosen.user_compute_stream, tf32=chosen.use_tf32
        )
        self._weights = device_weights_on(self.platform, chosen.weights)
        # Without a session somebody makes values, for streams that are not known here.
        settled = session_options is None
        self._there = CudaDevice(self.platform, self.stream, self._weights, settled=settled)
        self.device = self._there

    @classmethod
    def check(cls) -> str | None:
        """Return which of driver, device, cupy and CUDA libraries is missing, and the remedy."""
        from tenonnx_cuda.machine import this_machine

        return this_machine().missing()

    @classmethod
    def connect(cls, number: int) -> Platform:
        """Return the platform of a device."""
        from tenonnx_cuda.cupy_platform import connect

        return connect(number)

    @property
    def xp(self) -> Namespace:
        """The namespace of the device's arrays."""
        return self.platform.xp

    @functools.cached_property
    def target(self) -> Target:
        """The device, as calls have it."""
        from tenonnx_cuda.kernel_selection import Target

        return Target(self.platform, self.options)

    def declines(self, transform: str) -> str | None:
        """Decline to compute in float32 what is faster as it is."""
        return "16-bit floats are fast here" if transform == "widen-fp16" else None

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accept a node whose operator is in the table and whose elements a device has."""
        from tenonnx_cuda.elementwise.elements import not_on_device

        verdict = super().supports(node)
        if verdict is not True:
            return verdict
        kernel = self.table.find(node.domain, node.op_type, node.version or 1)
        assert kernel is not None, "the table was just asked"
        if kernel.host == "all":
            return f"{kernel} runs on the host"
        if (dtype := not_on_device(node)) is not None:
            return f"cupy has no elements of {dtype.name.lower()}"
        return True

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Return a step per node, each on the session's stream; or graphs of many."""
        from tenonnx.graph.values import value_infos
        from tenonnx_cuda.capture.step_fusion import fuse_steps

        escaping = frozenset(value_infos(segment.escaping))
        on_host = self._on_shapes(segment.nodes)
        chosen = {n: self._on_host(n) if n in on_host else self._chosen(n) for n in segment.nodes}
        self._preload(segment, chosen.values())
        steps = self._joined(segment, chosen, on_host)
        steps = [self._after_weights(step) for step in steps]
        if self.options.enable_cuda_graph:
            from tenonnx_cuda.capture.graph import captured_graphs

            steps = captured_graphs(steps, escaping, self.stream, self._there)
        else:
            steps = fuse_steps(steps, escaping, self._there)
        return [on_stream(self.stream, step) for step in steps]

    def _joined(
        self, segment: Segment, steps: dict[ir.Node, Step], on_host: frozenset[ir.Node]
    ) -> list[Step]:
        """Return the steps of nodes, some of them for several nodes."""
        from tenonnx_cuda.fuse import Scope, fuse

        nodes = [node for node in segment.nodes if node not in on_host]
        free = filter(self._is_free, nodes)
        fuse(Scope(nodes, free, segment.escaping, self.target), steps, self.device)
        return [steps[node] for node in segment.nodes if node in steps]

    def _on_shapes(self, nodes: Sequence[ir.Node]) -> frozenset[ir.Node]:
        """Return the nodes that compute with shapes, which the host does without a wait."""
        from tenonnx.planning.shape_arithmetic import on_shapes

        def starts_on_host(node: ir.Node) -> bool:
            return self.kernel(node).host_output

        found = on_shapes(nodes, LARGEST_SHAPE, starts_on_host)
        return frozenset(node for node in found if not starts_on_host(node))

    def _on_host(self, node: ir.Node) -> Step:
        """Return the step of a node that computes with shapes."""
        call = functools.partial(_as_array, self.bound(node, np))
        return self._step(node).replaced(call=call, host="all")

    def _is_free(self, node: ir.Node) -> bool:
        """Return whether a node's kernel is the library's, which no plug-in replaced."""
        from tenonnx_array import TABLE

        place = (node.domain, node.op_type, node.version or 1)
        return TABLE.find(*place) in (None, self.table.find(*place))

    def _chosen(self, node: ir.Node) -> Step:
        """Return the step of a node, with a kernel of the provider's own if there is one."""
        from tenonnx.graph.values import value_info
        from tenonnx_cuda.capture.dynamic_length import DynamicCall
        from tenonnx_cuda.capture.replay import Replayed
        from tenonnx_cuda.kernel_selection import Instead, Site, choices

        step = self._step(node)
        choice = choices().get((node.domain, node.op_type))
        if not self._is_free(node):
            return step
        if choice is None:
            is_view = not node.domain and node.op_type in RETURNS_PARTS
            return step.called(Replayed(step.call, self.platform)) if is_view else step
        found = choice(Site(node, self.target), functools.partial(_uncaptured, step.call))
        if found is None:
            return step
        if isinstance(found, Instead):
            inputs = tuple(map(value_info, found.inputs(node)))
            step = step.replaced(inputs=inputs)
            found = found.call
        if isinstance(found, DynamicCall) and found.numbers:
            step = step.replaced(host=found.numbers)
        return step.called(Replayed(found, self.platform))

    def _preload(self, segment: Segment, steps: Iterable[Step]) -> None:
        """Copy all weights that steps read to the device, in large transfers.

        What bodies get and return may be weights that no step knows to be any, so all are waited
        for where there are bodies.
        """
        import onnx_ir as ir

        from tenonnx.graph import is_control_flow

        read = (
            value.weight
            for step in steps
            for i, value in enumerate(step.inputs)
            if value is not None and step.device_of_input(i) is not HOST
        )
        graph = segment.nodes[0].graph
        bodies = isinstance(graph, ir.Graph) and any(map(is_control_flow, graph))
        self._weights.preload(filter(None, read), wait=bodies)

    def _after_weights(self, step: Step) -> Step:
        """Return a step that waits for those of its weights that are underway."""
        from tenonnx_cuda.weights.uploads import after

        inner = (value for node in step.nodes for value in node.inputs)
        values = filter(None, (*step.inputs, *inner))
        read = filter(None, (value.weight for value in values))
        known = dict.fromkeys(map(self._weights.upload, read))
        uploads = [upload for upload in known if upload is not None]
        self._there.expect(uploads)
        return after(uploads, step, self.stream)

    def _namespace(self, kernel: Kernel) -> Namespace:
        assert kernel.host != "all", "such a node was not accepted"
        return self.xp


def on_stream(stream: Stream, step: Step) -> Step:
    """Return a step whose work goes to a stream; a graph looks after that itself."""
    from tenonnx_cuda.capture.replay import Replayed

    parts = tuple(on_stream(stream, part) for part in step.parts)
    step, call = step.replaced(parts=parts), step.call
    if getattr(call, "has_stream", False) or step.host == "all":
        return step
    if isinstance(call, Replayed):
        return step.called(call.on(stream))

    run = functools.partial(_active, stream, call)
    return step.called(functools.update_wrapper(run, call, updated=()))


def _active(stream: Stream, call: Callable[..., Any], *inputs: Any, **buffers: Any) -> Any:
    with stream.active():
        return call(*inputs, **buffers)


def _uncaptured(call: Callable[..., Any], *inputs: Any) -> Any:
    from tenonnx_cuda.capture.tracer import cannot_capture

    cannot_capture()
    return call(*inputs)


def _as_array(call: Callable[..., Any], *inputs: Any) -> Any:
    return np.asarray(call(*inputs))  # numpy makes a number of one without axes
