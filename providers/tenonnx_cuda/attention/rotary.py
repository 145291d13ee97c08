"""RotaryEmbedding: a thread for each pair."""

from __future__ import annotations

import math

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.kernel_selection import Call, Site, choose, same_element
from tenonnx_cuda.sources import THREADS, blocks, pointer


@choose("RotaryEmbedding")
def rotary_embedding(site: Site, plain: Call) -> Call:
    """RotaryEmbedding of (batch, heads, length, size), or (batch, length, heads * size)."""
    xp = site.xp
    interleaved = np.int32(site.attribute("interleaved", 0))
    heads_3d: int = site.attribute("num_heads", 0)
    partial: int = site.attribute("rotary_embedding_dim", 0)

    def call(x: Array, cosines: Array, sines: Array, ids: Array | None = None) -> Array:
        element = same_element(x, cosines, sines)
        if element is None or not x.size or (x.ndim == 3 and not heads_3d):
            return plain(x, cosines, sines, ids)
        if x.ndim == 3:
            (batch, steps, width), heads = x.shape, heads_3d
            size = width // heads
            strides = (steps * heads * size, heads * size, size)
        else:
            batch, heads, steps, size = x.shape
            strides = (heads * steps * size, size, steps * size)
        turned = partial or size
        angles = (turned // 2,) if ids is not None else (batch, steps, turned // 2)
        fits = ids is None or ids.shape == (batch, steps)
        if not fits or cosines.shape[-len(angles) :] != angles or cosines.shape != sines.shape:
            return plain(x, cosines, sines, ids)
        given = [xp.ascontiguousarray(a) for a in (x, cosines, sines)]
        places = None if ids is None else xp.ascontiguousarray(ids.astype(np.int64, copy=False))
        y = xp.empty(x.shape, x.dtype)
        sizes = [np.int32(n) for n in (batch, steps, heads, size, turned)]
        count = batch * steps * heads * (size - turned // 2)
        launch = site.kernel("attention/rotary", "rotate", T=element)
        wide = [np.int64(n) for n in (math.prod(cosines.shape[:-1]), *strides)]
        arguments = (*given, pointer(places), y, *sizes, interleaved, *wide)
        launch(blocks(count), (THREADS,), arguments)
        return y

    return call
