"""Sessions whose constants, results and scratch memory lie in guarded memory.

Kernels are called as they always are, by captures, too; what callers feed they guard themselves.
"""

from __future__ import annotations

import types
from collections import Counter
from typing import Any

import numpy as np
from launches import rebind
from memory import NDArray, guarded_bytes, guarded_copy, span

from tenonnx_cpu import buffers, specialise
from tenonnx_cpu.capture import capturable, captured_call
from tenonnx_cpu.jit import scratch
from tenonnx_cpu.jit.runtime import KERNELS

CAPTURED: Counter[str] = Counter()
"""How many captures each kernel has."""

CALLS: Counter[int] = Counter()
"""How often a step that may be captured did without a capture."""

COPIES: dict[Any, NDArray] = {}
"""What constants are read from, until a trial is over."""


def guard_sessions(*, before: bool) -> None:
    """Has sessions of this process work in guarded memory from now on."""

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any] = buffers.F32) -> NDArray:
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.ndarray(shape, dtype, guarded_bytes(nbytes, before=before))

    rebind(buffers.empty, empty)
    rebind(scratch.aligned, lambda nbytes: guarded_bytes(nbytes, before=before, alignment=64))
    buffers.SMALL = captured_call.SMALL = 0
    _guard_constants(before)
    _count_captures()


def _guard_constants(before: bool) -> None:
    def kept(array: Any) -> Any:
        if not isinstance(array, np.ndarray) or not array.size or array.dtype.hasobject:
            return array
        key = span(array), array.shape, array.strides, array.dtype
        if key not in COPIES:
            copy = guarded_copy(array, before=before)
            copy.flags.writeable = False
            COPIES[key] = copy
            COPIES[id(copy)] = array  # so that no other array comes to lie there
        return COPIES[key]

    site, plain = specialise.Site, specialise.on_host

    def wrapped(method: Any) -> Any:
        return lambda *arguments: kept(method(*arguments))

    rebind(plain, lambda tensor: kept(plain(tensor)))
    for name in ("derived", "packed"):
        setattr(site, name, wrapped(getattr(site, name)))


def _count_captures() -> None:
    write, call = captured_call.encode, capturable._Tracer.__call__
    by_entry = {}

    def encode(described: Any) -> Any:
        run = described.facts[0]
        if isinstance(run, types.BuiltinFunctionType):
            by_entry.update({id(kernel.run): str(kernel) for kernel in KERNELS})
            CAPTURED[by_entry[id(run)]] += 1
        return write(described)

    def counted(self: Any, *arguments: Any) -> Any:
        CALLS[id(self)] += 1
        return call(self, *arguments)

    captured_call.encode = encode
    capturable._Tracer.__call__ = counted  # type: ignore[method-assign]
