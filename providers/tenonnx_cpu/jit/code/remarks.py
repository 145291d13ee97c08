"""The kernels that a process has, for people."""

from __future__ import annotations

import logging
from pathlib import Path

from tenonnx_cpu.jit.code.cache import cache_folder, compiler
from tenonnx_cpu.jit.code.cpu import installed, installed_kinds, lacks, target
from tenonnx_cpu.jit.runtime import has_code_objects, has_numba, jit_mode

log = logging.getLogger("tenonnx.jit")

Remark = tuple[str, str | None]
"""A finding, and how to mend it; ``None`` if it needs no mending."""

SLOW = "numpy computes, which takes several times as long"
COMPILE = "pip install 'tenonnx[jit]'"


def warn_of_missing(count: int) -> None:
    """Log a warning, once per process, that numpy computes in place of kernels.

    Args:
        count: The number of kernels that a session lacks; 0 if there are none at all.
    """
    if _warned:
        return
    _warned.append(True)
    remark, hint = kernels()
    if hint is None:  # there are others
        remark, hint = (
            f"{count} kernel{'s' * (count > 1)} of this model are missing: {SLOW}",
            COMPILE,
        )
    log.warning("%s; %s", remark, hint)


_warned: list[bool] = []


def kernels() -> Remark:
    """Return the origin of this process's kernels."""
    if jit_mode() == "0":
        return f"no kernels, because TENONNX_JIT is 0: {SLOW}", "unset TENONNX_JIT"
    chosen = target()
    kind = chosen.kind if chosen else "this very processor"
    if installed() is not None:
        return f"kernels for {kind}, installed", None
    if has_numba():
        by = f"numba {compiler()} into {cache_folder()}"
        return f"kernels for {kind}, compiled on demand by {by}", None
    if has_code_objects() and any(Path(cache_folder()).glob("*.image")):
        text = f"kernels that numba {compiler()} compiled into {cache_folder()}, else numpy"
        return text, None
    if kinds := installed_kinds():
        lacking = ", ".join(lacks(kinds[-1]))
        return f"the installed kernels need what this processor lacks, {lacking}: {SLOW}", COMPILE
    return f"no kernels: {SLOW}", f"{COMPILE}, or tenonnx where it comes with kernels"
