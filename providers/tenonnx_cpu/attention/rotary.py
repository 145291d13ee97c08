"""Rotary position embedding as exporters write it: halves exchanged, one of them negated."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tenonnx.by_name import cacheable
from tenonnx_array.rotary_halves import ROTARY_PARTS, Halves, find_rotary_halves
from tenonnx_cpu.buffers import F32, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, is_fixed
from tenonnx_cpu.fuse import PATTERN, Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call

if TYPE_CHECKING:
    import onnx_ir as ir

ROTATE = JitKernel("attention.rotary", "rotate")

# Elements that are worth a second thread.
MIN_ROTATED_ELEMENTS_PER_THREAD = 1 << 16


@fusion("Neg", priority=PATTERN, takes=ROTARY_PARTS)
def fuse_rotary(node: ir.Node, scope: Scope) -> Fused | None:
    """Take ``x * cos + concat(-x[half:], x[:half]) * sin``, over the last axis."""
    found = find_rotary_halves(node, scope)
    if found is None:
        return None
    output = found.nodes[-1].outputs[0]
    plain = scope.fallback(found.nodes, found.inputs, output)
    ROTATE.request()
    call = functools.partial(_rotated, found.halves, scope.threads, plain)
    return Fused(found.nodes, found.inputs, (output,), Capturable(call))


@cacheable
def _rotated(
    halves: Halves, threads: int, plain: Call, x: Any, cos: Any, sin: Any, *computed: Any
) -> Any:
    run, half = ROTATE.run, halves.half
    if computed and is_fixed(computed[0]):
        half = int(computed[0].item())
    fits = half is not None and halves.fit(x.shape, half) and _fits(x, cos, sin)
    if run is None or not fits:
        return plain(x, cos, sin, *computed)
    y = empty(x.shape)
    return Launch(
        run, (x, cos, sin, y, threads if x.size >= MIN_ROTATED_ELEMENTS_PER_THREAD else 1), y
    )


def _fits(x: Any, cos: Any, sin: Any) -> bool:
    if not (x.dtype == cos.dtype == sin.dtype == F32) or cos.shape != sin.shape or not x.size:
        return False
    batch, _, length, size = x.shape
    if cos.shape not in ((batch, 1, length, size), (1, 1, length, size)):
        return False
    return all(a.strides[3] == 4 and a.flags.aligned for a in (x, cos, sin))
