"""Kernels whose every argument lies in guarded memory while they run."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx_cpu import buffers
from tenonnx_cpu.jit import scratch
from tenonnx_cpu.jit.runtime import KERNELS, JitKernel
from tenonnx_cpu.testing.guarded_memory import Block, NDArray, span


class State:
    """The settings of this process's guards.

    Attributes:
        reference: Whether there are no kernels.
        copying: Whether each argument of each launch is copied into guarded memory.
        before: Whether arrays begin behind the page that is not mapped, and not end before it.
        arrayless: Kernels that take no arrays: machine code calls them.
        addressed: Kernels that get addresses instead of arrays: sessions guard what lies there.
        launches: How often each kernel ran.
        shared: How often it ran on more than one thread.
    """

    def __init__(self) -> None:
        self.reference = False
        self.copying = True
        self.before = False
        self.arrayless: frozenset[str] = frozenset()
        self.addressed: frozenset[str] = frozenset()
        self.launches: Counter[str] = Counter()
        self.shared: Counter[str] = Counter()


STATE = State()
_SLOT = JitKernel.__dict__["run"]
_rooms: list[tuple[tuple[int, int], Any]] = []
"""Scratch memory: where it lies, and a reference that tells whether it still does."""


class GuardedKernel:
    """A kernel that works in copies of its arguments, and copies back what it may have written.

    An argument that is a view of a larger array is copied with all of that: kernels are told by
    offsets where in it to read. Scratch memory is not: a kernel must stay in its piece.
    """

    def __init__(self, name: str, run: Callable[..., Any]) -> None:
        self.name = name
        self.run = run

    def __call__(self, *arguments: Any) -> Any:
        STATE.launches[self.name] += 1
        STATE.shared[self.name] += int(isinstance(arguments[-1], int) and arguments[-1] > 1)
        if not STATE.copying or self.name in STATE.addressed:
            return self.run(*arguments)
        arrays = [each for each in arguments if isinstance(each, np.ndarray) and each.size]
        groups = _joined([_reach(array) for array in arrays])
        blocks = [(low, high, Block(high - low, before=STATE.before)) for low, high in groups]
        for low, high, block in blocks:
            ctypes.memmove(block.address, low, high - low)
        try:
            return self.run(*(_moved(each, blocks) for each in arguments))
        finally:
            written = [span(array) for array in arrays if array.flags.writeable]
            for low, high, block in blocks:
                for start, stop in written:
                    if low <= start and stop <= high:
                        ctypes.memmove(start, block.address + start - low, stop - start)
                block.release()


def _reach(array: NDArray) -> tuple[int, int]:
    own, root, base = span(array), array, array.base
    while base is not None:  # as_strided's is no array, but has one
        root, base = base if isinstance(base, np.ndarray) else root, getattr(base, "base", None)
    whole = span(root)
    is_scratch = any(
        low <= own[0] and own[1] <= high and alive() is not None for (low, high), alive in _rooms
    )
    return own if is_scratch or not (whole[0] <= own[0] and own[1] <= whole[1]) else whole


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans, those that overlap as one."""
    made: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if made and low < made[-1][1]:
            made[-1] = made[-1][0], max(high, made[-1][1])
        else:
            made.append((low, high))
    return made


def _moved(argument: Any, blocks: list[tuple[int, int, Block]]) -> Any:
    if not isinstance(argument, np.ndarray) or not argument.size:
        return argument
    first, (low, high) = argument.__array_interface__["data"][0], span(argument)
    for start, stop, block in blocks:
        if start <= low and high <= stop:
            at = block.address + low - start
            raw = np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(at), np.uint8)
            made: NDArray = np.ndarray(
                argument.shape, argument.dtype, raw, first - low, argument.strides
            )
            made.flags.writeable = argument.flags.writeable
            return made
    raise AssertionError("every array lies in a block")


def guard_launches() -> None:
    """Have every kernel of this process guarded from now on, as ``STATE`` says."""

    def get(kernel: JitKernel) -> Any:
        return None if STATE.reference else _SLOT.__get__(kernel)

    def put(kernel: JitKernel, run: Any) -> None:
        name = str(kernel)
        if (
            run is not None
            and name not in STATE.arrayless
            and STATE.copying
            and type(run) is not GuardedKernel
        ):
            run = GuardedKernel(name, run)
        _SLOT.__set__(kernel, run)

    JitKernel.run = property(get, put)  # type: ignore[assignment,method-assign]
    if not STATE.copying:
        return
    plain, whole = scratch.aligned, scratch.scratch

    def aligned(nbytes: int) -> NDArray:
        room = plain(nbytes)
        _rooms[:] = [each for each in _rooms if each[1]() is not None]
        _rooms.append((span(room), weakref.ref(room.base)))
        return room

    rebind(plain, aligned)
    rebind(whole, lambda nbytes: whole(nbytes)[:nbytes])
    buffers.MIN_POOLED_BYTES = 1 << 62  # so that a result is an array of its own


def rebind(old: Any, new: Any) -> None:
    """Put something in the place of a function or number in every module that has it."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("tenonnx_cpu"):
            for name, value in list(vars(module).items()):
                if value is old:
                    setattr(module, name, new)


# Names of sizes from which on work is worth a second thread.
THRESHOLD = re.compile(r"MIN_\w+_PER_THREAD|MAX_SERIAL_\w+|ENOUGH|SERIAL|SHARED")


def share_everything() -> None:
    """Have all work shared out among threads, however little it is."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("tenonnx_cpu."):
            for name, value in list(vars(module).items()):
                if THRESHOLD.fullmatch(name) and isinstance(value, int):
                    setattr(module, name, 1)


def without_kernels(reference: bool) -> None:
    """Set whether sessions are made, and run, as if there were no kernels."""
    STATE.reference = reference
    os.environ["TENONNX_JIT"] = "0" if reference else "1"


def names() -> list[str]:
    """Return the name of every kernel."""
    return list(KERNELS)
