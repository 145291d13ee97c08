"""Sessions whose constants, results and scratch memory lie in guarded memory.

Kernels are called as they always are, by captures, too; what callers feed they guard themselves.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from launches import rebind

from tenonnx_cpu import buffers, kernel_selection
from tenonnx_cpu.capture import captured_run
from tenonnx_cpu.jit import scratch
from tenonnx_cpu.jit.runtime import KERNELS
from tenonnx_cpu.testing.guarded_memory import NDArray, guarded_bytes, guarded_copy, span

CAPTURED: Counter[str] = Counter()
"""The number of captures of each kernel."""

COPIES: dict[Any, NDArray] = {}
"""The memory of constants, kept until a trial is over."""


def guard_sessions(*, before: bool) -> None:
    """Have sessions of this process work in guarded memory from now on."""

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any] = buffers.F32) -> NDArray:
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.ndarray(shape, dtype, guarded_bytes(nbytes, before=before))

    rebind(buffers.empty, empty)
    rebind(scratch.aligned, lambda nbytes: guarded_bytes(nbytes, before=before, alignment=64))
    buffers.MIN_POOLED_BYTES = captured_run.MIN_POOLED_BYTES = 0
    captured_run.CapturedRun._share = _share_nothing  # type: ignore[method-assign]
    _guard_constants(before)
    _count_captures()


def _share_nothing(run: Any, _: Any) -> None:
    """Leave what steps exchange where it is, in guarded memory each."""
    run._kept, run._places, run._arena = [*range(len(run._stores))], {}, 0
    run._large = [True] * len(run._stores)


def _guard_constants(before: bool) -> None:
    def kept(array: Any) -> Any:
        if not isinstance(array, np.ndarray) or not array.size or array.dtype.hasobject:
            return array
        key = span(array), array.shape, array.strides, array.dtype
        if key not in COPIES:
            COPIES[key] = copy = buffers.frozen(guarded_copy(array, before=before))
            COPIES[id(copy)] = array  # so that no other array comes to lie there
        return COPIES[key]

    site, plain = kernel_selection.Site, kernel_selection.on_host

    def wrapped(method: Any) -> Any:
        return lambda *arguments: kept(method(*arguments))

    rebind(plain, lambda tensor: kept(plain(tensor)))
    for name in ("derived", "packed"):
        setattr(site, name, wrapped(getattr(site, name)))


def _count_captures() -> None:
    write = captured_run.CapturedRun.encode

    def encode(self: Any) -> Any:
        by_entry = {id(kernel.run): str(kernel) for kernel in KERNELS.values()}
        CAPTURED.update(by_entry[id(run)] for run in self.launches.entries)
        return write(self)

    captured_run.CapturedRun.encode = encode  # type: ignore[method-assign]
