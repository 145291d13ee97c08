"""Several nodes of a segment as one step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenonnx.provider import Device, Step
from tenonnx_cuda.graphs.grouping import Group
from tenonnx_cuda.graphs.program import Program
from tenonnx_cuda.growing import Grown
from tenonnx_cuda.noting import cannot_repeat
from tenonnx_cuda.repeating import Repeated

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx_cuda.options import CudaOptions
    from tenonnx_cuda.platform import Platform


@dataclass
class Joining:
    """A segment's nodes, some of whose steps are to become one.

    Attributes:
        nodes: In an order in which they can run.
        escaping: Values that something outside of them reads.
        steps: The nodes' steps; one of several nodes is its last one's, if no more is said.
        has_own: Whether a node is computed by a kernel of somebody else's.
        platform: The device.
        device: As the runtime knows it.
        options: The session's.
    """

    nodes: Sequence[ir.Node]
    escaping: frozenset[ir.Value]
    steps: dict[ir.Node, Step]
    has_own: Callable[[ir.Node], bool]
    platform: Platform
    device: Device
    options: CudaOptions
    _inside: set[ir.Node] = field(init=False)

    def __post_init__(self) -> None:
        self._inside = set(self.nodes)

    def is_free(self, node: ir.Node | None) -> bool:
        """Says whether a node may become part of a step."""
        return node is not None and node in self._inside and not self.has_own(node)

    def free(self) -> Iterator[ir.Node]:
        """Yields the nodes that may, at the time when it is their turn."""
        return filter(self.is_free, self.nodes)

    def only_reader(self, node: ir.Node) -> ir.Node | None:
        """Returns the node that reads another's first output, if nobody else does and it may."""
        readers = set(node.outputs[0].consumers())
        if len(readers) != 1 or node.outputs[0] in self.escaping:
            return None
        (reader,) = readers
        return reader if self.is_free(reader) else None

    def join(
        self,
        nodes: Sequence[ir.Node],
        inputs: Sequence[ir.Value | None],
        outputs: Sequence[ir.Value],
        call: Callable[..., tuple[Any, ...] | None] | Grown,
        at: ir.Node | None = None,
        host: tuple[int, ...] = (),
    ) -> None:
        """Makes one step of nodes.

        Args:
            nodes: In order.
            inputs: What the call takes, constants too.
            outputs: What it returns.
            call: The step's; where it returns ``None``, the nodes' own steps run.
            at: The node where the step stands; the last one if ``None``. By then all that it reads
                is there.
            host: Positions of inputs that the call takes on the host, as the nodes do.
        """
        self._inside.difference_update(nodes)
        own = [self.steps.pop(node) for node in nodes]

        @functools.cache
        def program() -> Program:
            group = Group()
            for step in own:
                group.add(step)
            return Program(group, outputs)

        grown = call if isinstance(call, Grown) else None

        @functools.wraps(call if grown is None else grown.call)  # with its buffers, if it takes any
        def run(*arrays: Any, **buffers: Any) -> Any:
            if (found := call(*arrays, **buffers)) is not None:
                return found
            cannot_repeat()
            values = dict(zip(inputs, arrays, strict=True))
            return program()(*(values[value] for value, _ in program().inputs))

        self.steps[at or nodes[-1]] = Step(
            Repeated(run, self.platform, grown=grown),
            tuple(inputs),
            tuple(outputs),
            tuple(nodes),
            multiple=True,
            device=self.device,
            host=host,
        )
