"""Rotary position embedding as exporters write it: halves exchanged, one of them negated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenonnx_array.rotary_halves import PARTS, find_rotary_halves
from tenonnx_cpu.buffers import F32, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, is_fixed
from tenonnx_cpu.fuse import PATTERN, Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel

if TYPE_CHECKING:
    import onnx_ir as ir

ROTATE = JitKernel("attention.rotary", "rotate")

ENOUGH = 1 << 16
"""Elements that are worth a second thread."""


@fusion("Neg", priority=PATTERN, takes=PARTS)
def fuse_rotary(node: ir.Node, scope: Scope) -> Fused | None:
    """Takes ``x * cos + concat(-x[half:], x[:half]) * sin``, over the last axis."""
    found = find_rotary_halves(node, scope)
    if found is None:
        return None
    output = found.nodes[-1].outputs[0]
    plain, threads = scope.fallback(found.nodes, found.inputs, output), scope.threads
    ROTATE.request()

    def call(x: Any, cos: Any, sin: Any, *computed: Any) -> Any:
        run, half = ROTATE.run, found.half
        if computed and is_fixed(computed[0]):
            half = int(computed[0].item())
        fits = half is not None and found.fits(x.shape, half) and _fits(x, cos, sin)
        if run is None or not fits:
            return plain(x, cos, sin, *computed)
        y = empty(x.shape)
        return Launch(run, (x, cos, sin, y, threads if x.size >= ENOUGH else 1), y)

    return Fused(found.nodes, found.inputs, (output,), Capturable(call))


def _fits(x: Any, cos: Any, sin: Any) -> bool:
    if not (x.dtype == cos.dtype == sin.dtype == F32) or cos.shape != sin.shape or not x.size:
        return False
    batch, _, length, size = x.shape
    if cos.shape not in ((batch, 1, length, size), (1, 1, length, size)):
        return False
    return all(a.strides[3] == 4 and a.flags.aligned for a in (x, cos, sin))
