"""The kernels that a process has, for people."""

from __future__ import annotations

import functools
import logging

from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.code.cpu import installed_kinds, lacks, target
from tenonnx_cpu.jit.runtime import KERNELS, has_numba, jit_mode

log = logging.getLogger("tenonnx.jit")

Remark = tuple[str, str | None]
"""A finding, and how to mend it; ``None`` if it needs no mending."""

SLOW = "numpy computes, which takes several times as long"
NO_WAY = "there are kernels for Linux on x86-64 and AArch64 alone"
NUMBA = "pip install 'tenonnx[jit]'"


@functools.cache
def warn_of_missing() -> None:
    """Log a warning, once per process, that numpy computes in place of kernels."""
    log.warning("kernels are not compiled for this processor: %s; %s", SLOW, mend() or NO_WAY)


def mend() -> str | None:
    """Return what gives this process the kernels that it lacks; ``None`` if nothing does."""
    if not library.SUPPORTED or target() is None:
        return None
    return "tenonnx warmup" if has_numba() else f"{NUMBA}, then tenonnx warmup"


def kernels() -> Remark:
    """Return the origin of this process's kernels, all of which have been declared."""
    if jit_mode() == "0":
        return f"no kernels, because TENONNX_JIT is 0: {SLOW}", "unset TENONNX_JIT"
    found, chosen = library.find(), target()
    if found is not None and chosen is not None and library.current() is not None:
        lacking = [name for name, kernel in KERNELS.items() if kernel.run is None]
        text = f"kernels for {chosen.kind}, in {found.path}"
        return (f"{text}, which lacks {', '.join(lacking)}", mend()) if lacking else (text, None)
    if found is not None:
        return f"{found.path} cannot be used: {SLOW}", mend()
    if (kinds := installed_kinds()) and (lacking := lacks(kinds[-1])):
        missing = ", ".join(lacking)
        return f"the installed kernels need what this processor lacks, {missing}: {SLOW}", mend()
    return f"no kernels: {SLOW}", mend()
