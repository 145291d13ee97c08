"""Attention without a matrix of scores, by kernels of the provider's own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.capture.tracer import DynamicNumber
from tenonnx_cuda.kernel_selection import Target, same_element
from tenonnx_cuda.sources import ALONE_MACRO, LARGEST_GRID, Kernel, is_aligned, pointer

# Elements of a head up to which its tiles fit in a block's shared memory.
MAX_HEAD_ELEMENTS: Final = 256

FLASH_THREADS: Final = 128

# Elements of a head up to which a warp's sums fit in its registers.
LARGEST_TENSOR: Final = 128

MMA_WARPS: Final = 4
WARP_ROWS: Final = 16
# Warps of a block, rows of a warp, and keys at a time: as ``attention_mma.cu`` says.
WARP_KEYS: Final = 32

BUSY_WARPS: Final = 1024
# Warps, and blocks, that a device is kept busy by: with fewer tiles than that, their keys are
# shared out.
BUSY_BLOCKS: Final = 528

# Keys of a share at least.
LEAST_KEYS: Final = 32

# Threads that join the shares of a row, and at most four times as many shares: as ``shares.cuh``
# says.
JOINING_THREADS: Final = 256

# Keys that a window reaches at most: kernels add them to positions, as ints.
MAX_WINDOW_KEYS: Final = 1 << 30

# In place of an offset: sequences that are shorter than there are queries begin with the first.
FROM_ZERO: Final = -2


@dataclass(frozen=True)
class Heads:
    """An array of heads.

    Attributes:
        array: It.
        batch: Sequences.
        heads: Of each.
        steps: Of each.
        size: Elements of a head.
        strides: In elements, per batch, head and step.
        room: Steps that there is space for where more are written behind these; 0 for no such.
    """

    array: Array
    batch: int
    heads: int
    steps: int
    size: int
    strides: tuple[int, int, int]
    room: int = 0

    @property
    def capacity(self) -> int:
        """The number of steps that it has room for."""
        return self.room or self.steps

    @classmethod
    def of(cls, xp: Any, x: Array, count: int) -> Heads:
        """Take (batch, heads, length, size), or (batch, length, heads * size) with a count.

        Heads may lie apart, as those do that are a transposed view; elements of one may not.
        """
        if x.strides[-1] != x.itemsize or any(s % x.itemsize for s in x.strides):
            x = xp.ascontiguousarray(x)
        apart = tuple(stride // x.itemsize for stride in x.strides)
        if x.ndim == 4:
            batch, heads, steps, size = x.shape
            return cls(x, batch, heads, steps, size, apart[:3])
        batch, steps, width = x.shape
        size = width // count
        return cls(x, batch, count, steps, size, (apart[0], size, apart[1]))


@dataclass(frozen=True)
class Scoring:
    """The keys that queries attend to, and the operations on their scores.

    Attributes:
        mask: Its kind, array, strides and keys, as ``masked`` returns them.
        offset: How many keys are before the first query, ``DynamicNumber`` if they are a cache;
            negative if ``lengths`` say, which may be ``FROM_ZERO``.
        lengths: int64 (batch,): keys of each sequence, or ``None`` for all.
        sinks: float32 (heads,): one more score of each head, or ``None``.
        fixed: Whether the model declares all lengths.
        left: Keys before its own that a query sees; negative for all.
        right: Keys after its own that a query sees; negative for all.
        scale: Of scores.
        softcap: What scores saturate at; 0 for none.
    """

    mask: tuple[int, Array | None, tuple[int, ...], int]
    offset: int | DynamicNumber
    lengths: Array | None
    left: int
    right: int
    scale: float
    softcap: float
    sinks: Array | None = None
    fixed: bool = False

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The kernels' arguments of its attributes that are numbers."""
        offset = self.offset if isinstance(self.offset, DynamicNumber) else np.int32(self.offset)
        factors = (np.float32(self.scale), np.float32(self.softcap))
        return (offset, np.int32(self.left), np.int32(self.right), *factors)


def masked(
    mask: Array | None, q: Heads, k: Heads, dtype: np.dtype[Any]
) -> tuple[int, Array | None, tuple[int, ...], int] | None:
    """Return a mask's kind, array, strides and keys; ``None`` if the kernels cannot read it."""
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
    """Return whether there is a kernel for heads."""
    element = same_element(q.array, k.array, v.array)
    small = max(q.size, v.size) <= MAX_HEAD_ELEMENTS and max(q.heads, q.batch) <= LARGEST_GRID
    alike = (k.batch, k.heads, k.steps) == (q.batch, v.heads, v.steps) and v.batch == q.batch
    return element is not None and small and alike and q.heads % k.heads == 0 and q.size == k.size


@dataclass(frozen=True)
class FlashTask:
    """Heads to attend, and where the result goes.

    Attributes:
        target: The device.
        q: Queries.
        k: Keys.
        v: Values.
        scoring: The keys that queries attend to, and operations on the scores.
        y: (batch, heads, steps, size of v), or (batch, steps, heads, size of v) as q lies.
        strides: Of y in elements, per batch, head and step.
    """

    target: Target
    q: Heads
    k: Heads
    v: Heads
    scoring: Scoring
    y: Array
    strides: tuple[int, int, int]

    @classmethod
    def of(cls, target: Target, q: Heads, k: Heads, v: Heads, scoring: Scoring) -> FlashTask:
        """Make room for the result."""
        width = q.heads * v.size
        if q.array.ndim == 3:
            shape = (q.batch, q.steps, q.heads, v.size)
            strides = (q.steps * width, v.size, width)
        else:
            shape = (q.batch, q.heads, q.steps, v.size)
            strides = (q.steps * width, q.steps * v.size, v.size)
        y = target.xp.empty(shape, q.array.dtype)
        return cls(target, q, k, v, scoring, y, strides)

    @property
    def macros(self) -> dict[str, Any]:
        """The properties that all kernels are compiled for."""
        kind = self.scoring.mask[0]
        element = self.target.element(self.q.array)
        return {"T": element, "SIZE": self.q.size, "VALUE": self.v.size, "MASK": kind}

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The kernels' arguments, up to those of ``Shares``."""
        q, k, v, scoring = self.q, self.k, self.v, self.scoring
        _, mask, steps, keys = scoring.mask
        more = map(pointer, (mask, scoring.lengths, scoring.sinks))
        sizes = (np.int32(q.heads // k.heads), np.int32(q.steps), self._longer(np.int32(k.steps)))
        strides = map(np.int64, (*q.strides, *k.strides, *v.strides, *self.strides))
        # Rows of a mask are as long as there are keys.
        rows = [self._longer(np.int64(n), n // keys) if n else np.int64(0) for n in steps]
        where = (*strides, *rows, self._longer(np.int32(keys)) if keys else np.int32(0))
        return (q.array, k.array, v.array, *more, self.y, *sizes, *where, *scoring.numbers)

    def _longer(self, number: np.generic, times: int = 1) -> np.generic | DynamicNumber:
        """Return a number that grows where keys do."""
        return DynamicNumber(number, times) if self.k.room else number

    @property
    def suits_tensor_cores(self) -> bool:
        """Whether 16 bytes of a head can be read at once everywhere, and its sums be held."""
        all_heads = (self.q, self.k, self.v)
        sizes = all(h.size % 32 == 0 and h.size <= LARGEST_TENSOR for h in (self.q, self.v))
        even = all(stride % 8 == 0 for h in all_heads for stride in h.strides)
        return sizes and even and is_aligned(*(h.array for h in all_heads))


def by_tiles(task: FlashTask) -> None:
    """Start a block for each tile of queries; its keys pass through shared memory."""
    q = task.q
    large = max(q.size, task.v.size) > MAX_HEAD_ELEMENTS // 2
    rows = 1 if q.steps == 1 else 4 if q.steps <= 4 else 8 if large else 16
    macros = {
        **task.macros,
        "ROWS": rows,
        "COLUMNS": 16 if large else 32,
        "THREADS": FLASH_THREADS,
        **ALONE_MACRO,
    }
    tiles = -(-q.steps // rows)
    shares = Shares.of(task, BUSY_BLOCKS // (tiles * q.heads * q.batch))
    launch = task.target.kernel("attention/attention", "attend", **macros)
    grid = (tiles * shares.parts, q.heads, q.batch)
    launch(grid, (FLASH_THREADS,), (*task.arguments, *shares.arguments))
    shares.combine(task.target.kernel("attention/attention", "combine", **macros), task)


def on_tensor_cores(task: FlashTask) -> None:
    """Start a warp for each tile of rows."""
    q, k, v = task.q, task.k, task.v
    tiles = -(-q.steps * (q.heads // k.heads) // WARP_ROWS)
    shares = Shares.of(task, BUSY_WARPS // (tiles * k.heads * q.batch))
    staged = shares.parts == 1 and tiles >= MMA_WARPS
    macros = {**task.macros, "EACH": 8 if v.size % 64 == 0 else 4, "STAGED": int(staged)}
    macros |= ALONE_MACRO if staged else {}
    launch = task.target.kernel("attention/attention_mma", "attend_tensor", **macros)
    grid = (-(-tiles * shares.parts // MMA_WARPS), k.heads, q.batch)
    launch(grid, (MMA_WARPS * 32,), (*task.arguments, *shares.arguments))
    shares.combine(task.target.kernel("attention/attention_mma", "combine", **macros), task)


@dataclass(frozen=True)
class Shares:
    """Into what the keys are cut, so that few tiles keep a device busy.

    Attributes:
        parts: How many shares there are.
        span: Keys of each; 0 where there are fewer than there may be, which kernels cut evenly.
        sums: float32 (parts, rows, size of v), or ``None`` for one share.
        stats: float32 (parts, rows, 2): their largest scores and the sums of their exponentials.
    """

    parts: int
    span: int
    sums: Array | None
    stats: Array | None

    @classmethod
    def of(cls, task: FlashTask, most: int) -> Shares:
        """Cut keys into at most so many shares."""
        q, steps = task.q, task.k.capacity
        parts = max(1, min(most, steps // LEAST_KEYS))
        span = max(1, -(-steps // (parts * WARP_KEYS))) * WARP_KEYS
        parts = max(1, -(-steps // span))
        if parts == 1:
            return cls(1, span, None, None)
        sizes, empty = (parts, q.batch * q.heads * q.steps), task.target.xp.empty
        sums = empty((*sizes, task.v.size), np.float32)
        if task.k.room or task.scoring.lengths is not None:
            span = 0
        return cls(parts, span, sums, empty((*sizes, 2), np.float32))

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The kernels' last ones."""
        return np.int32(self.parts), np.int32(self.span), pointer(self.sums), pointer(self.stats)

    def combine(self, launch: Kernel, task: FlashTask) -> None:
        """Make one result of several shares'."""
        if self.parts == 1:
            return
        q = task.q
        sizes = map(np.int32, (self.parts, q.heads, q.steps))
        arrays = (self.sums, self.stats, pointer(task.scoring.sinks), task.y)
        rows = q.batch * q.heads * q.steps
        launch((rows,), (JOINING_THREADS,), (*arrays, *sizes, *map(np.int64, task.strides)))
