"""Rotary embeddings as exporters write them, with halves that are cut, negated and joined."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.rotary_halves import ROTARY_PARTS, Halves, find_rotary_halves
from tenonnx_cuda.fuse import PATTERN, Fused, Scope, fusion
from tenonnx_cuda.kernel_selection import same_element
from tenonnx_cuda.platform import Platform
from tenonnx_cuda.sources import THREADS_PER_BLOCK, blocks, kernel

if TYPE_CHECKING:
    import onnx_ir as ir


@fusion("Neg", priority=PATTERN, takes=ROTARY_PARTS)
def fuse_rotary(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a rotary embedding."""
    if (found := find_rotary_halves(node, scope)) is None:
        return None
    call = functools.partial(rotated, scope.target.platform, found.halves)
    on_host = tuple(range(3, len(found.inputs)))
    return Fused(found.nodes, found.inputs, (found.nodes[-1].outputs[0],), call, on_host)


def rotated(
    platform: Platform,
    halves: Halves,
    x: Array,
    cosines: Array,
    sines: Array,
    computed: Any = None,
) -> Array | None:
    """Return x [a, b, c, 2 * half] turned, or ``None`` where the kernel does not fit.

    Args:
        platform: The device.
        halves: The halves of its last axis.
        x: Four axes, of which the last lies together.
        cosines: What broadcasts to it.
        sines: What broadcasts to it.
        computed: Half of the last axis, on the host, where that is not known before.
    """
    half = int(computed.item()) if halves.half is None else halves.half
    xp, element = platform.xp, same_element(x, cosines, sines)
    if element is None or not halves.fit(x.shape, half) or not x.size:
        return None
    if any(a.ndim > 4 or a.shape[-1:] != x.shape[-1:] for a in (cosines, sines)):
        return None
    if np.broadcast_shapes(x.shape, cosines.shape, sines.shape) != x.shape:
        return None
    # Views with stride 0, which the kernel reads by its strides: nothing is copied.
    waves = [xp.broadcast_to(a, x.shape) for a in (cosines, sines)]
    if any(a.strides[-1] != a.itemsize for a in (x, *waves)):
        return None
    y = xp.empty(x.shape, x.dtype)
    steps = [np.int64(n // x.itemsize) for a in (x, *waves) for n in a.strides[:3]]
    sizes = (*map(np.int32, (*x.shape[1:3], half)), np.int64(x.size // 2))
    launch = kernel(platform, "attention/rotary", "turn", T=element)
    launch(blocks(x.size // 2), (THREADS_PER_BLOCK,), (x, *waves, y, *steps, *sizes))
    return y
