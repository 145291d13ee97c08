"""Rotary position embedding as exporters write it: halves exchanged, one of them negated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenonnx_cpu.buffers import F32, empty
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.recording.launch import Launch
from tenonnx_cpu.recording.recorded import Recorded

if TYPE_CHECKING:
    import onnx_ir as ir

ROTATE = JitKernel("attention.rotary", "rotate")

ENOUGH = 1 << 16
"""Elements that are worth a second thread."""


@fusion("Slice", turn=-1)
def fuse_rotary(node: ir.Node, scope: Scope) -> Fused | None:
    """Takes ``x * cos + concat(-x[half:], x[:half]) * sin``, over the last axis."""
    x = node.inputs[0]
    if x is None:
        return None
    slices = [use.node for use in x.uses() if use.node.op_type == "Slice" and use.idx == 0]
    products = [use.node for use in x.uses() if use.node.op_type == "Mul"]
    if len(slices) != 2 or len(products) != 1 or not all(map(scope.has, (*slices, *products))):
        return None
    negated = [s for s in slices if _reader(s, scope, "Neg") is not None]
    if len(negated) != 1:
        return None
    high = negated[0]
    low = slices[0] if high is slices[1] else slices[1]
    minus = _reader(high, scope, "Neg")
    joined = None if minus is None else _reader(minus, scope, "Concat")
    if minus is None or joined is None or _reader(low, scope, "Concat") is not joined:
        return None
    if tuple(joined.inputs) != (minus.outputs[0], low.outputs[0]):
        return None
    turned = _reader(joined, scope, "Mul")
    straight = products[0]
    total = None if turned is None else _reader(turned, scope, "Add")
    if turned is None or total is None or _reader(straight, scope, "Add") is not total:
        return None
    half = _halves(low, high, scope)
    if half is None or scope.site(joined).attribute("axis", None) not in (-1, 3):
        return None
    cos, sin = _other(straight, x), _other(turned, joined.outputs[0])
    nodes = (low, high, minus, joined, straight, turned, total)
    given = tuple(v for n in (low, high) for v in n.inputs[1:] if v is not None)
    inputs = tuple(dict.fromkeys((x, cos, sin, *given)))
    plain = scope.fallback(nodes, inputs, total.outputs[0])
    threads = scope.threads
    ROTATE.request()

    def call(x: Any, cos: Any, sin: Any, *rest: Any) -> Any:
        run = ROTATE.run
        if run is None or not _fits(x, cos, sin, half):
            return plain(x, cos, sin, *rest)
        y = empty(x.shape)
        return Launch(run, (x, cos, sin, y, threads if x.size >= ENOUGH else 1), y)

    return Fused(nodes, inputs, (total.outputs[0],), Recorded(call))


def _fits(x: Any, cos: Any, sin: Any, half: int) -> bool:
    if not (x.dtype == cos.dtype == sin.dtype == F32) or not x.ndim == cos.ndim == sin.ndim == 4:
        return False
    batch, _, length, size = x.shape
    if size != 2 * half or cos.shape != sin.shape or not x.size:
        return False
    if cos.shape not in ((batch, 1, length, size), (1, 1, length, size)):
        return False
    return all(a.strides[3] == 4 and a.flags.aligned for a in (x, cos, sin))


def _reader(node: ir.Node, scope: Scope, op_type: str) -> ir.Node | None:
    after = scope.reader(node.outputs[0])
    fits = after is not None and after.op_type == op_type and not after.domain
    return after if fits else None


def _other(node: ir.Node, value: ir.Value) -> ir.Value | None:
    first, second = node.inputs
    return second if first is value else first


def _halves(low: ir.Node, high: ir.Node, scope: Scope) -> int | None:
    """Returns the length of a half if two slices are the halves of the last of four axes."""
    ends = []
    for node in (low, high):
        if (node.version or 1) < 10:
            return None
        given = [scope.site(node).constant(n) for n in range(1, len(node.inputs))]
        if len(given) < 3 or any(v is None or v.size != 1 for v in given):
            return None
        start, stop, axis, *step = (int(v.reshape(-1)[0]) for v in given if v is not None)
        if axis not in (3, -1) or step not in ([], [1]):
            return None
        ends.append((start, stop))
    (first, half), (start, stop) = ends
    return half if first == 0 and start == half > 0 and stop >= 2 * half else None
