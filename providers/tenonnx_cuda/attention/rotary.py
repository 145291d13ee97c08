"""RotaryEmbedding: a thread for each pair."""

from __future__ import annotations

import functools
import math

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.attention.flash import Heads
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose, same_element
from tenonnx_cuda.sources import THREADS_PER_BLOCK, blocks, pointer


@choose("RotaryEmbedding")
def rotary_embedding(site: Site, plain: Call) -> Call:
    """RotaryEmbedding of (batch, heads, length, size), or (batch, length, heads * size)."""
    return functools.partial(
        turned,
        site.target,
        plain,
        np.int32(site.attribute("interleaved", 0)),
        site.attribute("num_heads", 0),
        site.attribute("rotary_embedding_dim", 0),
    )


def turned(
    target: Target,
    plain: Call,
    interleaved: np.int32,
    heads_3d: int,
    partial: int,
    x: Array,
    cosines: Array,
    sines: Array,
    ids: Array | None = None,
) -> Array:
    """Return heads turned.

    Args:
        target: The device.
        plain: Takes what the kernel does not.
        interleaved: Whether pairs are neighbors.
        heads_3d: Heads of an array of three axes; 0 if none is given.
        partial: Elements of a head that turn; 0 for all.
        x: The heads.
        cosines: Of positions, or of each sequence's.
        sines: Of the same positions.
        ids: Positions (batch, length).
    """
    xp, element = target.xp, same_element(x, cosines, sines)
    if element is None or not x.size or (x.ndim == 3 and not heads_3d):
        return plain(x, cosines, sines, ids)
    heads = Heads.of(xp, xp.ascontiguousarray(x), heads_3d)
    size = partial or heads.size
    angles = (size // 2,) if ids is not None else (heads.batch, heads.steps, size // 2)
    fits = ids is None or ids.shape == (heads.batch, heads.steps)
    if not fits or cosines.shape[-len(angles) :] != angles or cosines.shape != sines.shape:
        return plain(x, cosines, sines, ids)
    given = [xp.ascontiguousarray(a) for a in (heads.array, cosines, sines)]
    places = None if ids is None else xp.ascontiguousarray(ids.astype(np.int64, copy=False))
    y = xp.empty(x.shape, x.dtype)
    sizes = map(np.int32, (heads.batch, heads.steps, heads.heads, heads.size, size))
    count = x.size // heads.size * (heads.size - size // 2)
    by_batch, by_head, by_step = heads.strides
    wide = map(np.int64, (math.prod(cosines.shape[:-1]), by_batch, by_step, by_head))
    arguments = (*given, pointer(places), y, *sizes, interleaved, *wide)
    target.kernel("attention/rotary", "rotate", T=element)(
        blocks(count), (THREADS_PER_BLOCK,), arguments
    )
    return y
