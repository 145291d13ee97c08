"""Numbers that are keys, and the rows of tables at these: LabelEncoder, OneHotEncoder, tokens."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.ml.encode import Keys, Lookup, OneHot
from tenonnx_cpu.buffers import F64, contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, ahead, fix
from tenonnx_cpu.elementwise.kernels.operations import FLOAT64, INT64
from tenonnx_cpu.elementwise.typed import APPLY, code_of, launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.ml.kernels import FACTOR, NAN

FIND_HASHED = JitKernel("ml.lookup", "look_up")
FIND_WHOLE = JitKernel("ml.lookup", "look_up_whole")

I64 = np.dtype(np.int64)

# Slots of a table for each key, and how many of them after its own a key may lie at most.
SLOTS_PER_KEY, MAX_STEPS = 4, 64

# Keys that have slots at most: 8 MiB of them, which are made in a tenth of a second.
MAX_HASHED_KEYS = 1 << 16

MASK = (1 << 64) - 1

# Numbers that are worth a second thread.
MIN_LOOKED_UP_PER_THREAD = 1 << 14


@specialize("LabelEncoder", "OneHotEncoder", domain="ai.onnx.ml")
def specialize_lookup(site: Site, plain: Call) -> Call | None:
    """Take numbers, or words, whose rows are numbers."""
    truncates = isinstance(plain, OneHot)
    rows = plain.rows if isinstance(plain, OneHot) and plain.zeros else plain
    if not isinstance(rows, Lookup):
        return None
    if rows.joins:
        from tenonnx_cpu.ml.columns import WordsCall

        return WordsCall(rows, site.threads, plain)
    if (finder := finder_of(rows.keys, rows.table, truncates)) is None:
        return None
    return Capturable(functools.partial(_looked_up, finder, site.threads, plain))


@cacheable
def _looked_up(finder: Finder, threads: int, plain: Call, x: NDArray) -> Any:
    return finder.launch(x, threads) or plain(x)


def finder_of(keys: Keys, table: NDArray, truncates: bool) -> Finder | None:
    """Return what finds numbers among keys; ``None`` if the kernels do not."""
    if keys.are_words or not keys.count or table.dtype.hasobject or not table.size:
        return None
    if keys.places is not None:
        return Finder(table, FIND_WHOLE, (keys.least, fix(keys.places)), I64, truncates)
    made = hashed(keys.place, keys.count)
    is_float = keys.dtype.kind == "f"
    return made and Finder(
        table, FIND_HASHED, (is_float, *made), F64 if is_float else I64, truncates
    )


def hashed(rows: Mapping[Any, int], missing: int) -> tuple[NDArray, int] | None:
    """Return slots that have keys, as the kernel takes them.

    ``None`` if they are many, or some would be far from where they belong.

    Args:
        rows: The row of each key; ``None`` is NaN.
        missing: The row of numbers that are no keys.

    Returns:
        The slots, and how many bits do not choose one.
    """
    if len(rows) > MAX_HASHED_KEYS:
        return None
    shift = 64 - (SLOTS_PER_KEY * len(rows)).bit_length()
    slots = np.full(((1 << 64 - shift) + MAX_STEPS + 1, 2), (0, missing), np.int64)
    for key, row in rows.items():
        bits = NAN if key is None else key
        if isinstance(key, float):
            bits = int(np.float64(key + 0.0).view(np.int64))  # which has no -0
        at = first = (bits * FACTOR & MASK) >> shift
        while slots[at, 1] != missing:
            at += 1
            if at > first + MAX_STEPS:
                return None
        slots[at] = bits, row
    return fix(slots), shift


@cacheable
class Finder:
    """The arguments of a kernel that looks numbers up.

    Args:
        table: A row for each key, and one for all else.
        kernel: The kernel.
        keys: What it takes after the numbers.
        wanted: Their type.
        truncates: Whether floats may be looked up among whole numbers.
    """

    def __init__(
        self, table: NDArray, kernel: JitKernel, keys: tuple[Any, ...], wanted: np.dtype[Any],
        truncates: bool = False,
    ) -> None:  # fmt: skip
        APPLY.request()
        kernel.request()
        self._kernel, self._keys, self._wanted = kernel, keys, wanted
        self._shape, self._dtype, self._row = table.shape[1:], table.dtype, table[0].nbytes
        self._table = fix(np.ascontiguousarray(table).reshape(-1).view(np.uint8))
        self._takes = "f" if wanted == F64 else "iuf" if truncates else "iu"

    def launch(self, x: NDArray, threads: int) -> Launch | None:
        """Return a launch that looks numbers up; ``None`` if the kernel does not."""
        run, source = self._kernel.run, code_of(x.dtype)
        if run is None or source is None or not x.size or x.dtype.kind not in self._takes:
            return None
        if x.dtype != self._wanted:
            code = INT64 if self._wanted == I64 else FLOAT64
            made = launch(code, source, (x,), self._wanted, threads)
            if made is None:
                return None
            x = ahead(made)
        y = empty((*x.shape, *self._shape), self._dtype)
        grain, team = shared_out(x.size, x.size, MIN_LOOKED_UP_PER_THREAD, threads)
        given, out = contiguous(x).reshape(-1).view(I64), y.reshape(-1).view(np.uint8)
        return Launch(run, (given, *self._keys, self._table, self._row, out, grain, team), y)
