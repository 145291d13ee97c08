"""Several nodes of a segment as one step on the device."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tenonnx.graph.values import ValueInfo, value_info, value_infos
from tenonnx.planning.fusion import Fused as Fused
from tenonnx.planning.fusion import Fusions
from tenonnx.planning.fusion import Scope as AnyScope
from tenonnx.planning.spans import Span
from tenonnx.provider import Device, Step
from tenonnx_cuda.capture.dynamic_length import DynamicCall
from tenonnx_cuda.capture.program import DeviceProgram
from tenonnx_cuda.capture.replay import Replayed
from tenonnx_cuda.capture.tracer import cannot_capture
from tenonnx_cuda.kernel_selection import Site, Target, choices

if TYPE_CHECKING:
    import onnx_ir as ir

# Patterns of several operators: their parts are elementwise, and chains would take them.
PATTERN: Final = 20

# Sums and their normalizations: a product adds as it stores, which spares a pass, not a part.
RESIDUAL: Final = 70

# Chains of elementwise nodes: what nothing else took.
ELEMENTWISE_CHAINS: Final = 80


class Scope(AnyScope):
    """The nodes that a fusion may take.

    Args:
        nodes: A segment's that run on the device.
        free: Those of them that are not computed by a kernel of somebody else's.
        escaping: Values that something outside of them reads.
        target: The device.
    """

    def __init__(
        self,
        nodes: Sequence[ir.Node],
        free: Iterable[ir.Node],
        escaping: frozenset[ir.Value],
        target: Target,
    ) -> None:
        super().__init__(nodes, free, escaping)
        self.target = target

    def site(self, node: ir.Node) -> Site:
        """Return a node as choices see it."""
        return Site(node, self.target)


FUSIONS: Final[Fusions[Scope]] = Fusions()

# Decorates a fusion, whose call may return `None`: the nodes' own steps run then.
fusion = FUSIONS.add


def fuse(scope: Scope, steps: dict[ir.Node, Step], device: Device) -> None:
    """Put the steps of fusions in the place of their nodes'."""
    choices()
    for place, found in FUSIONS.find(scope).items():
        own = [steps.pop(node) for node in sorted(found.nodes, key=scope.position)]
        steps[place] = Step(
            Replayed(_dynamic(found, own), scope.target.platform),
            found.inputs,
            found.outputs,
            found.nodes,
            multiple=len(found.outputs) > 1,
            device=device,
            host=found.host,
        )


def _dynamic(found: Fused, own: Sequence[Step]) -> DynamicCall:
    declared = found.call if isinstance(found.call, DynamicCall) else DynamicCall(found.call)
    given, outputs = tuple(map(value_info, found.inputs)), value_infos(found.outputs)
    call = FusedCall(declared.call, own, given, outputs)
    return dataclasses.replace(declared, call=call)


class FusedCall:
    """A fusion's call, and its nodes' steps for what that does not take.

    Args:
        call: Returns ``None`` for what it does not take.
        own: The nodes' steps.
        inputs: What it takes.
        outputs: What it returns.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        own: Sequence[Step],
        inputs: Sequence[ValueInfo | None],
        outputs: Sequence[ValueInfo],
    ) -> None:
        self.__wrapped__ = call  # whose signature says which buffers it takes
        self._own, self._inputs, self._outputs = own, inputs, outputs

    @functools.cached_property
    def _program(self) -> DeviceProgram:
        span = Span()
        for step in self._own:
            span.add(step)
        return DeviceProgram(span, self._outputs)

    def __call__(self, *arrays: Any, **buffers: Any) -> Any:
        """Return the results."""
        if (made := self.__wrapped__(*arrays, **buffers)) is not None:
            return made
        cannot_capture()
        program, values = self._program, dict(zip(self._inputs, arrays, strict=True))
        results = program(*(values[value] for value, _ in program.inputs))
        return results if len(results) > 1 else results[0]
