"""Attention without a matrix of scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.attention import count_before
from tenonnx_cuda.chosen import Call, Site, choose, same_element
from tenonnx_cuda.sources import pointer

LARGEST: Final = 256
"""Elements of a head up to which its tiles fit in a block's shared memory."""

THREADS: Final = 128


@dataclass(frozen=True)
class Heads:
    """An array of heads and its strides, in elements, per batch, head and step."""

    array: Array
    batch: int
    heads: int
    steps: int
    size: int
    strides: tuple[int, int, int]

    @classmethod
    def of(cls, xp: Any, x: Array, count: int) -> Heads:
        """Takes (batch, heads, length, size), or (batch, length, heads * size) with a count."""
        x = xp.ascontiguousarray(x)
        if x.ndim == 4:
            batch, heads, steps, size = x.shape
            return cls(x, batch, heads, steps, size, (heads * steps * size, steps * size, size))
        batch, steps, width = x.shape
        size = width // count
        return cls(x, batch, count, steps, size, (steps * width, size, width))


@choose("Attention")
def attention(site: Site, plain: Call) -> Call | None:
    """Attention whose scores nobody asks for."""
    xp = site.xp
    q_heads, kv_heads = site.attribute("q_num_heads", 0), site.attribute("kv_num_heads", 0)
    scale, softcap = site.attribute("scale", None), site.attribute("softcap", 0.0)
    left = site.attribute("left_window_size", -1)
    right = 0 if site.attribute("is_causal", 0) else site.attribute("right_window_size", -1)
    if len(site.node.outputs) > 3:
        return None

    def call(
        Q: Array,
        K: Array,
        V: Array,
        mask: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        lengths: Array | None = None,
    ) -> tuple[Any, ...]:
        given = (Q, K, V, mask, past_key, past_value, lengths)
        element = same_element(Q, K, V, past_key, past_value)
        if element is None or not Q.size or not V.size or (Q.ndim == 3 and not q_heads):
            return plain(*given)  # type: ignore[no-any-return]  # a kernel of the library
        offset = count_before(Q.shape[-2], past_key, past_value, None)
        q = Heads.of(xp, Q, q_heads)
        k, v = Heads.of(xp, K, kv_heads), Heads.of(xp, V, kv_heads)
        if past_key is not None:
            keys, values = unpacked(k), unpacked(v)
            k = Heads.of(xp, xp.concatenate((past_key, keys), axis=2), 0)
            v = Heads.of(xp, xp.concatenate((past_value, values), axis=2), 0)
        seen = masked(mask, q, k, Q.dtype)
        fits = max(q.size, v.size) <= LARGEST and q.heads % k.heads == 0 and q.size == k.size
        if not fits or seen is None:
            return plain(*given)  # type: ignore[no-any-return]  # likewise
        factor = 1 / math.sqrt(q.size) if scale is None else scale
        bounds = [np.int32(n) for n in (offset, left, right)]
        numbers = (*bounds, np.float32(factor), np.float32(softcap))
        y = attended(site, element, q, k, v, seen, lengths, numbers)
        return y.reshape(*Q.shape[:2], -1) if Q.ndim == 3 else y, unpacked(k), unpacked(v)

    return call


def masked(
    mask: Array | None, q: Heads, k: Heads, dtype: np.dtype[Any]
) -> tuple[int, Array | None, tuple[int, ...], int] | None:
    """Returns a mask's kind, array, strides and keys; ``None`` if the kernel cannot read it."""
    if mask is None:
        return 0, None, (0, 0, 0), 0
    if mask.dtype not in (np.bool_, dtype) or mask.shape[-1] > k.steps:
        return None
    shape = (*(1,) * (4 - mask.ndim), *mask.shape)
    wanted = (q.batch, q.heads, q.steps)
    if any(n not in (1, m) for n, m in zip(shape, wanted, strict=False)):
        return None
    flat = mask if mask.flags.c_contiguous else mask.copy()
    sizes = [math.prod(shape[i + 1 :]) for i in range(3)]
    strides = tuple(0 if n == 1 else s for n, s in zip(shape[:3], sizes, strict=True))
    if mask.shape[-1] == 1 < k.steps:
        return None
    return (2 if mask.dtype == np.bool_ else 1), flat, strides, int(mask.shape[-1])


def attended(
    site: Site,
    element: str,
    q: Heads,
    k: Heads,
    v: Heads,
    seen: tuple[int, Array | None, tuple[int, ...], int],
    lengths: Array | None,
    numbers: tuple[Any, ...],
) -> Array:
    """Returns the result in the layout of q."""
    kind, mask, mask_strides, mask_keys = seen
    large = max(q.size, v.size) > LARGEST // 2
    rows = 1 if q.steps == 1 else 4 if q.steps <= 4 else 8 if large else 16
    packed = q.array.ndim == 3
    shape = (q.batch, q.steps, q.heads, v.size) if packed else (q.batch, q.heads, q.steps, v.size)
    y = site.xp.empty(shape, q.array.dtype)
    width = q.heads * v.size
    y_strides = (
        (q.steps * width, v.size, width) if packed else (q.steps * width, q.steps * v.size, v.size)
    )
    launch = site.kernel(
        "attention",
        "attend",
        T=element,
        SIZE=q.size,
        VALUE=v.size,
        ROWS=rows,
        COLUMNS=16 if large else 32,
        THREADS=THREADS,
        MASK=kind,
    )
    where = [np.int64(n) for h in (q, k, v) for n in h.strides]
    sizes = [np.int32(n) for n in (q.heads // k.heads, q.steps, k.steps)]
    arrays = (q.array, k.array, v.array, pointer(mask), pointer(lengths), y)
    offsets = [*map(np.int64, y_strides), *map(np.int64, mask_strides), np.int32(mask_keys)]
    grid = (-(-q.steps // rows), q.heads, q.batch)
    launch(grid, (THREADS,), (*arrays, *sizes, *where, *offsets, *numbers))
    return y


def unpacked(x: Heads) -> Array:
    """Returns an array as (batch, heads, length, size)."""
    if x.array.ndim == 4:
        return x.array
    return x.array.reshape(x.batch, x.steps, x.heads, x.size).swapaxes(1, 2)
