"""Rotary embeddings as exporters write them, with halves that are cut, negated and joined."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tenonnx.graph import array_of
from tenonnx.operators import Array
from tenonnx.planning.lower import is_constant
from tenonnx_cuda.chosen import same_element
from tenonnx_cuda.fuse import PATTERN, Fused, Scope, fusion
from tenonnx_cuda.platform import Platform
from tenonnx_cuda.sources import THREADS, blocks, kernel

if TYPE_CHECKING:
    import onnx_ir as ir

LAST: Final = (-1, 3)
"""The last of four axes."""

TO_THE_END: Final = 2**31 - 1
"""No axis is longer."""

Maker = Callable[["ir.Value | None", str], "ir.Node | None"]
"""Returns the node that makes a value, if its operator is named so and it may become part of a step
with the one that reads it."""


@dataclass(frozen=True)
class Turn:
    """``x * cosines + concat(-x[half:], x[:half]) * sines`` along the last axis.

    Attributes:
        nodes: In order.
        inputs: x, cosines and sines; and half of the last axis, if that is computed as it runs.
        half: That half, if it is known.
    """

    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    half: int | None


@fusion("Add", priority=PATTERN)
def fuse_turn(add: ir.Node, scope: Scope) -> Fused | None:
    """Takes a rotary embedding."""

    def maker(value: ir.Value | None, op_type: str) -> ir.Node | None:
        node = None if value is None else value.producer()
        if node is None or (node.domain, node.op_type) != ("", op_type):
            return None
        alone = scope.has(node) and scope.consumer(node.outputs[0]) is not None
        return node if alone else None

    if (turn := _turn(add, maker)) is None:
        return None
    call = functools.partial(turned, scope.platform, turn.half)
    on_host = tuple(range(3, len(turn.inputs)))
    return Fused(turn.nodes, turn.inputs, tuple(add.outputs), call, on_host)


def _turn(add: ir.Node, maker: Maker) -> Turn | None:
    products = [maker(value, "Mul") for value in add.inputs]
    for straight, crossed in (products, products[::-1]):
        if straight is None or crossed is None:
            return None
        for joined, sines in (crossed.inputs, crossed.inputs[::-1]):
            found = _halves(maker(joined, "Concat"), maker)
            if found is None or sines is None:
                continue
            parts, x, half = found
            others = [value for value in straight.inputs if value is not x]
            if len(others) == 1 and others[0] is not None:
                waves = (x, others[0], sines)
                known = _number(half)
                inputs = waves if known is not None else (*waves, half)
                return Turn((*parts, straight, crossed, add), inputs, known)
    return None


def _halves(
    concat: ir.Node | None, maker: Maker
) -> tuple[tuple[ir.Node, ...], ir.Value, ir.Value] | None:
    """Returns the nodes that exchange halves, of which value, and what says how long one is.

    ``x.shape[-1] // 2`` is what that is in models whose sizes are computed as they run.
    """
    if concat is None or len(concat.inputs) != 2 or concat.attributes["axis"].value not in LAST:
        return None
    negated, low = maker(concat.inputs[0], "Neg"), maker(concat.inputs[1], "Slice")
    high = None if negated is None else maker(negated.inputs[0], "Slice")
    if negated is None or low is None or high is None or low.inputs[0] is not high.inputs[0]:
        return None
    (x, *first), (_, *second) = low.inputs, high.inputs
    bounds = [[_number(value) for value in values] for values in (first, second)]
    if any(len(b) < 3 or b[2] not in LAST or b[3:] not in ([], [1]) for b in bounds):
        return None
    (zero, half, *_), (start, end, *_) = bounds
    same = first[1] is second[0] if half is None else start == half
    if x is None or first[1] is None or zero != 0 or not same or end is None:
        return None
    whole = end >= (TO_THE_END if half is None else 2 * half)
    return ((low, high, negated, concat), x, first[1]) if whole else None


def _number(value: ir.Value | None) -> int | None:
    if value is None or not is_constant(value) or value.const_value is None:
        return None
    array = array_of(value.const_value)
    return int(array.reshape(())) if array.size == 1 else None


def turned(
    platform: Platform, half: int | None, x: Array, cosines: Array, sines: Array, end: Any = None
) -> tuple[Array] | None:
    """Returns x [a, b, c, 2 * half] turned, or ``None`` where the kernel does not fit.

    Args:
        platform: The device.
        half: Half of the last axis; what ``end`` says if ``None``.
        x: Four axes, of which the last lies together.
        cosines: What broadcasts to it.
        sines: Likewise.
        end: On the host.
    """
    half = int(end.item()) if half is None else half
    xp, element = platform.xp, same_element(x, cosines, sines)
    if element is None or x.ndim != 4 or x.shape[-1] != 2 * half or not x.size:
        return None
    if any(a.ndim > 4 or a.shape[-1:] != x.shape[-1:] for a in (cosines, sines)):
        return None
    if np.broadcast_shapes(x.shape, cosines.shape, sines.shape) != x.shape:
        return None
    waves = [xp.broadcast_to(a, x.shape) for a in (cosines, sines)]
    if any(a.strides[-1] != a.itemsize for a in (x, *waves)):
        return None
    y = xp.empty(x.shape, x.dtype)
    steps = [np.int64(n // x.itemsize) for a in (x, *waves) for n in a.strides[:3]]
    sizes = (*map(np.int32, (*x.shape[1:3], half)), np.int64(x.size // 2))
    launch = kernel(platform, "rotary", "turn", T=element)
    launch(blocks(x.size // 2), (THREADS,), (x, *waves, y, *steps, *sizes))
    return (y,)
