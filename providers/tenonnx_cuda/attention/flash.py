"""Attention without a matrix of scores: which of the kernels, and how it is started."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.chosen import Site, same_element
from tenonnx_cuda.platform import Launch
from tenonnx_cuda.sources import is_aligned, pointer

LARGEST: Final = 256
"""Elements of a head up to which its tiles fit in a block's shared memory."""

THREADS: Final = 128

LARGEST_TENSOR: Final = 128
"""Elements of a head up to which a warp's sums fit in its registers."""

WARPS: Final = 4
ROWS: Final = 16
KEYS: Final = 32
"""Warps of a block, rows of a warp, and keys at a time: as ``attention_mma.cu`` says."""

UNITS: Final = 1024
BLOCKS: Final = 528
"""Warps, and blocks, that a device is kept busy by: with fewer tiles than that, their keys are
shared out."""

LEAST_KEYS: Final = 64
"""Keys of a share at least."""

FROM_ZERO: Final = -2
"""In place of an offset: sequences that are shorter than there are queries begin with the first."""


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


@dataclass(frozen=True)
class Sight:
    """What queries see of the keys, and what becomes of their scores.

    Attributes:
        mask: Its kind, array, strides and keys, as ``masked`` returns them.
        offset: How many keys are before the first query; negative if ``lengths`` say, which may
            be ``FROM_ZERO``.
        lengths: int64 (batch,): keys of each sequence, or ``None`` for all.
        sinks: float32 (heads,): one more score of each head, or ``None``.
        left: Keys before its own that a query sees; negative for all.
        right: Keys after its own that a query sees; negative for all.
        scale: Of scores.
        softcap: What scores saturate at; 0 for none.
    """

    mask: tuple[int, Array | None, tuple[int, ...], int]
    offset: int
    lengths: Array | None
    left: int
    right: int
    scale: float
    softcap: float
    sinks: Array | None = None

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The kernels' arguments of its attributes that are numbers."""
        bounds = (self.offset, self.left, self.right)
        factors = (np.float32(self.scale), np.float32(self.softcap))
        return (*map(np.int32, bounds), *factors)


def masked(
    mask: Array | None, q: Heads, k: Heads, dtype: np.dtype[Any]
) -> tuple[int, Array | None, tuple[int, ...], int] | None:
    """Returns a mask's kind, array, strides and keys; ``None`` if the kernels cannot read it."""
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


def attends(q: Heads, k: Heads, v: Heads) -> bool:
    """Says whether there is a kernel for heads."""
    element = same_element(q.array, k.array, v.array)
    small = max(q.size, v.size) <= LARGEST
    return element is not None and small and q.heads % k.heads == 0 and q.size == k.size


def attended(site: Site, q: Heads, k: Heads, v: Heads, sight: Sight) -> Array:
    """Returns attention's result in the layout of q, for heads that there is a kernel for."""
    element = site.element(q.array)
    packed = q.array.ndim == 3
    shape = (q.batch, q.steps, q.heads, v.size) if packed else (q.batch, q.heads, q.steps, v.size)
    y = site.xp.empty(shape, q.array.dtype)
    width = q.heads * v.size
    strides = (
        (q.steps * width, v.size, width) if packed else (q.steps * width, q.steps * v.size, v.size)
    )
    where = [np.int64(n) for h in (q, k, v) for n in h.strides]
    _, mask, mask_strides, mask_keys = sight.mask
    arrays = (*(h.array for h in (q, k, v)), *map(pointer, (mask, sight.lengths, sight.sinks)), y)
    sizes = [np.int32(n) for n in (q.heads // k.heads, q.steps, k.steps)]
    masks = [*map(np.int64, mask_strides), np.int32(mask_keys)]
    given = (*arrays, *sizes, *where, *map(np.int64, strides), *masks, *sight.numbers)
    fast = site.has_tensor_cores and element != "f32" and suits_tensor_cores(q, k, v)
    start = on_tensor_cores if fast else by_tiles
    start(site, element, (q, k, v), sight, given, y, strides)
    return y


Triple: TypeAlias = tuple[Heads, Heads, Heads]


def by_tiles(
    site: Site,
    element: str,
    heads: Triple,
    sight: Sight,
    given: tuple[Any, ...],
    y: Array,
    strides: tuple[int, ...],
) -> None:
    """Starts a block for each tile of queries; its keys pass through shared memory."""
    q, _, v = heads
    large = max(q.size, v.size) > LARGEST // 2
    rows = 1 if q.steps == 1 else 4 if q.steps <= 4 else 8 if large else 16
    columns = 16 if large else 32
    macros = {"T": element, "SIZE": q.size, "VALUE": v.size, "ROWS": rows, "COLUMNS": columns,
              "THREADS": THREADS, "MASK": sight.mask[0]}  # fmt: skip
    tiles = -(-q.steps // rows)
    shares = Shares.of(site, heads, BLOCKS // (tiles * q.heads * q.batch))
    launch = site.kernel("attention", "attend", **macros)
    launch((tiles * shares.parts, q.heads, q.batch), (THREADS,), (*given, *shares.arguments))
    shares.combine(site.kernel("attention", "combine", **macros), heads, sight, y, strides)


def suits_tensor_cores(q: Heads, k: Heads, v: Heads) -> bool:
    """Says whether 16 bytes of a head can be read at once everywhere, and its sums be held."""
    sizes = all(h.size % 32 == 0 and h.size <= LARGEST_TENSOR for h in (q, v))
    even = all(stride % 8 == 0 for h in (q, k, v) for stride in h.strides)
    return sizes and even and is_aligned(*(h.array for h in (q, k, v)))


def on_tensor_cores(
    site: Site,
    element: str,
    heads: Triple,
    sight: Sight,
    given: tuple[Any, ...],
    y: Array,
    strides: tuple[int, ...],
) -> None:
    """Starts a warp for each tile of rows."""
    q, k, v = heads
    tiles = -(-q.steps * (q.heads // k.heads) // ROWS)
    shares = Shares.of(site, heads, UNITS // (tiles * k.heads * q.batch))
    staged = shares.parts == 1 and tiles >= WARPS
    macros = {"T": element, "SIZE": q.size, "VALUE": v.size, "MASK": sight.mask[0],
              "EACH": 8 if v.size % 64 == 0 else 4, "STAGED": int(staged)}  # fmt: skip
    launch = site.kernel("attention_mma", "attend_tensor", **macros)
    grid = (-(-tiles * shares.parts // WARPS), k.heads, q.batch)
    launch(grid, (WARPS * 32,), (*given, *shares.arguments))
    shares.combine(site.kernel("attention_mma", "combine", **macros), heads, sight, y, strides)


@dataclass(frozen=True)
class Shares:
    """Into what the keys are cut, so that few tiles keep a device busy.

    Attributes:
        parts: How many shares there are.
        span: Keys of each.
        sums: float32 (parts, rows, size of v), or ``None`` for one share.
        stats: float32 (parts, rows, 2): their largest scores and the sums of their exponentials.
    """

    parts: int
    span: int
    sums: Array | None
    stats: Array | None

    @classmethod
    def of(cls, site: Site, heads: Triple, most: int) -> Shares:
        """Cuts keys into at most so many shares."""
        q, k, v = heads
        parts = max(1, min(most, k.steps // LEAST_KEYS))
        span = max(1, -(-k.steps // (parts * KEYS))) * KEYS
        parts = max(1, -(-k.steps // span))
        if parts == 1:
            return cls(1, span, None, None)
        sizes = (parts, q.batch * q.heads * q.steps)
        empty = site.xp.empty
        return cls(parts, span, empty((*sizes, v.size), np.float32), empty((*sizes, 2), np.float32))

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The kernels' last ones."""
        return np.int32(self.parts), np.int32(self.span), pointer(self.sums), pointer(self.stats)

    def combine(
        self, launch: Launch, heads: Triple, sight: Sight, y: Array, strides: tuple[int, ...]
    ) -> None:
        """Makes one result of several shares'."""
        if self.parts == 1:
            return
        q = heads[0]
        sizes = [np.int32(n) for n in (self.parts, q.heads, q.steps)]
        arrays = (self.sums, self.stats, pointer(sight.sinks), y)
        rows = q.batch * q.heads * q.steps
        launch((rows,), (32,), (*arrays, *sizes, *map(np.int64, strides)))
