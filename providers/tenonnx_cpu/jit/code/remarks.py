"""The kernels that a process has, for people."""

from __future__ import annotations

import functools
import logging
import os

from tenonnx_cpu.jit.code import code_object
from tenonnx_cpu.jit.code.cache import cache_folder
from tenonnx_cpu.jit.code.cpu import installed, installed_kinds, lacks, target
from tenonnx_cpu.jit.runtime import COMPILE, KERNELS, has_code_objects, has_numba, jit_mode

log = logging.getLogger("tenonnx.jit")

Remark = tuple[str, str | None]
"""A finding, and how to mend it; ``None`` if it needs no mending."""

SLOW = "numpy computes, which takes several times as long"
NUMBA = "pip install 'tenonnx[jit]'"


@functools.cache
def warn_of_missing() -> None:
    """Log a warning, once per process, that numpy computes in place of kernels."""
    log.warning("kernels are not compiled for this processor: %s; %s", SLOW, mend())


def mend() -> str:
    """Return what gives this process the kernels that it lacks."""
    if not code_object.SUPPORTED:
        return f"set TENONNX_JIT={COMPILE}" + ("" if has_numba() else f" and {NUMBA}")
    return "tenonnx warmup" if has_numba() else f"{NUMBA}, then tenonnx warmup"


def kernels() -> Remark:
    """Return the origin of this process's kernels, all of which have been declared."""
    if jit_mode() == "0":
        return f"no kernels, because TENONNX_JIT is 0: {SLOW}", "unset TENONNX_JIT"
    chosen = target()
    kind = chosen.kind if chosen else "this very processor"
    if installed() is not None:
        return f"kernels for {kind}, installed", None
    if jit_mode() == COMPILE and has_numba():
        return f"kernels for {kind}, compiled as they are wanted into {cache_folder()}", None
    if has_code_objects() and (there := _cached()):
        text = f"{there} of {len(KERNELS)} kernels for {kind} in {cache_folder()}"
        return (text, None) if there == len(KERNELS) else (f"{text}, else numpy", mend())
    if kinds := installed_kinds():
        lacking = ", ".join(lacks(kinds[-1]))
        return f"the installed kernels need what this processor lacks, {lacking}: {SLOW}", mend()
    return f"no kernels: {SLOW}", mend()


def _cached() -> int:
    """Return how many kernels are in the cache."""
    return sum(os.path.exists(kernel.path()) for kernel in KERNELS)
