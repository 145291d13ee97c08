"""Rotary position embedding as exporters write it: halves exchanged, one of them negated."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tenonnx.planning.lower import is_constant
from tenonnx_cpu.buffers import F32, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.constants import is_fixed
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.fuse import PATTERN, Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel

if TYPE_CHECKING:
    import onnx_ir as ir

ROTATE = JitKernel("attention.rotary", "rotate")

ENOUGH = 1 << 16
"""Elements that are worth a second thread."""


class Match(NamedTuple):
    """The nodes of a rotary embedding: slices of both halves, then what becomes of them."""

    low: ir.Node
    high: ir.Node
    others: tuple[ir.Node, ...]
    cos: ir.Value | None
    sin: ir.Value | None


@fusion("Slice", priority=PATTERN)
def fuse_rotary(node: ir.Node, scope: Scope) -> Fused | None:
    """Takes ``x * cos + concat(-x[half:], x[:half]) * sin``, over the last axis."""
    x = node.inputs[0]
    found = None if x is None else _match(x, scope)
    if found is None:
        return None
    slices = found.low, found.high
    bounds = tuple(value for each in slices for value in each.inputs[1:])
    count = len(found.low.inputs) - 1
    sure = [value is not None and is_constant(value) for value in bounds]
    constants = [scope.site(each).constant(n + 1) for each in slices for n in range(count)]
    if any(len(each.inputs) - 1 != count or (each.version or 1) < 10 for each in slices):
        return None
    known = _half(constants[:count], constants[count:]) if all(sure) else None
    if known is None and all(sure):
        return None
    nodes, inputs = (*slices, *found.others), (x, found.cos, found.sin, *bounds)
    output = nodes[-1].outputs[0]
    plain, threads = scope.fallback(nodes, inputs, output), scope.threads
    ROTATE.request()

    def call(x: Any, cos: Any, sin: Any, *bounds: Any) -> Any:
        run, half = ROTATE.run, known
        if half is None and all(map(operator.or_, sure, map(is_fixed, bounds))):
            half = _half(bounds[:count], bounds[count:])
        if run is None or half is None or not _fits(x, cos, sin, half):
            return plain(x, cos, sin, *bounds)
        y = empty(x.shape)
        return Launch(run, (x, cos, sin, y, threads if x.size >= ENOUGH else 1), y)

    return Fused(nodes, inputs, (output,), Capturable(call))


def _match(x: ir.Value, scope: Scope) -> Match | None:
    """Returns the rotary embedding that a value goes through, if it does and nobody reads more."""
    slices = [use.node for use in x.uses() if use.node.op_type == "Slice" and use.idx == 0]
    products = [use.node for use in x.uses() if use.node.op_type == "Mul"]
    if len(slices) != 2 or len(products) != 1 or not all(map(scope.has, (*slices, *products))):
        return None
    low, high = sorted(slices, key=lambda each: _reader(each, scope, "Neg") is not None)
    minus = _reader(high, scope, "Neg")
    joined = None if minus is None else _reader(minus, scope, "Concat")
    if minus is None or joined is None or _reader(low, scope, "Concat") is not joined:
        return None
    if tuple(joined.inputs) != (minus.outputs[0], low.outputs[0]):
        return None
    if scope.site(joined).attribute("axis", None) not in (-1, 3):
        return None
    (straight,), turned = products, _reader(joined, scope, "Mul")
    total = None if turned is None else _reader(turned, scope, "Add")
    if turned is None or total is None or _reader(straight, scope, "Add") is not total:
        return None
    cos, sin = _other(straight, x), _other(turned, joined.outputs[0])
    return Match(low, high, (minus, joined, straight, turned, total), cos, sin)


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


def _half(low: Sequence[Any], high: Sequence[Any]) -> int | None:
    """Returns the length of a half if the inputs of two slices say halves of the last axis of four.

    They are starts, ends, axes and perhaps steps.
    """
    ends = []
    for given in (low, high):
        if len(given) < 3 or any(value is None or value.size != 1 for value in given):
            return None
        start, stop, axis, *step = (int(value.reshape(-1)[0]) for value in given)
        if axis not in (3, -1) or step not in ([], [1]):
            return None
        ends.append((start, stop))
    (first, half), (start, stop) = ends
    return half if first == 0 and start == half > 0 and stop >= 2 * half else None
