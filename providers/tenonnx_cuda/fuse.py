"""Several nodes of a segment as one step on the device."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tenonnx.planning.fusion import Fused as Fused
from tenonnx.planning.fusion import Fusions
from tenonnx.planning.fusion import Scope as AnyScope
from tenonnx.planning.spans import Span
from tenonnx.provider import Device, Step
from tenonnx_cuda.capture.dynamic_length import DynamicCall
from tenonnx_cuda.capture.program import DeviceProgram
from tenonnx_cuda.capture.replay import Replayed
from tenonnx_cuda.capture.tracer import cannot_capture
from tenonnx_cuda.kernel_selection import Site, choices

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx_cuda.options import CudaOptions
    from tenonnx_cuda.platform import Platform

PATTERN: Final = 20
"""Patterns of several operators: their parts are elementwise, and chains would take them."""

RESIDUAL: Final = 70
"""Sums and their normalizations: a product adds as it stores, which spares a pass, not a part."""

ELEMENTWISE: Final = 80
"""Chains of elementwise nodes: what nothing else took."""


class Scope(AnyScope):
    """The nodes that a fusion may take.

    Args:
        nodes: A segment's that run on the device.
        free: Those of them that are not computed by a kernel of somebody else's.
        escaping: Values that something outside of them reads.
        platform: The device.
        options: The session's.
    """

    def __init__(
        self,
        nodes: Sequence[ir.Node],
        free: Iterable[ir.Node],
        escaping: frozenset[ir.Value],
        platform: Platform,
        options: CudaOptions,
    ) -> None:
        super().__init__(nodes, free, escaping)
        self.platform = platform
        self.options = options

    def site(self, node: ir.Node) -> Site:
        """Returns a node as choices see it."""
        return Site(node, self.platform, self.options)


FUSIONS: Final[Fusions[Scope]] = Fusions()

fusion = FUSIONS.add
"""Decorates a fusion, whose call may return ``None``: the nodes' own steps run then."""


def fuse(scope: Scope, steps: dict[ir.Node, Step], device: Device) -> None:
    """Puts the steps of fusions in the place of their nodes'."""
    choices()
    for place, found in FUSIONS.find(scope).items():
        own = [steps.pop(node) for node in sorted(found.nodes, key=scope.position)]
        steps[place] = Step(
            _call(found, own, scope.platform),
            found.inputs,
            found.outputs,
            found.nodes,
            multiple=len(found.outputs) > 1,
            device=device,
            host=found.host,
        )


def _call(found: Fused, own: Sequence[Step], platform: Platform) -> Replayed:
    """Returns what computes a fusion, or its nodes one by one where it does not fit."""
    declared = found.call if isinstance(found.call, DynamicCall) else DynamicCall(found.call)
    call, inputs = declared.call, found.inputs

    @functools.cache
    def program() -> DeviceProgram:
        span = Span()
        for step in own:
            span.add(step)
        return DeviceProgram(span, found.outputs)

    @functools.wraps(call)  # with its buffers, if it takes any
    def run(*arrays: Any, **buffers: Any) -> Any:
        if (made := call(*arrays, **buffers)) is not None:
            return made
        cannot_capture()
        values = dict(zip(inputs, arrays, strict=True))
        results = program()(*(values[value] for value, _ in program().inputs))
        return results if len(results) > 1 else results[0]

    return Replayed(dataclasses.replace(declared, call=run), platform)
