"""The kernels that a process has, for people."""

from __future__ import annotations

import functools
import logging
import os

from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.code.cpu import SUFFIX, installed_kinds, lacks, target
from tenonnx_cpu.jit.packages import OWN, Package, plugin_packages
from tenonnx_cpu.jit.runtime import KERNELS, has_numba, jit_mode

log = logging.getLogger("tenonnx.jit")

# A finding, and how to mend it; `None` if it needs no mending.
Remark = tuple[str, str | None]

SLOW = "numpy computes, which takes several times as long"
NO_WAY = "there are kernels for Linux on x86-64 and AArch64 alone"
NUMBA = "pip install 'tenonnx[jit]'"


@functools.cache
def warn_of_missing(package: str = "") -> None:
    """Log a warning, once per process, that numpy computes in place of kernels.

    Args:
        package: The plug-in's package that has them; empty for this provider's.
    """
    whose = f"{package}: " if package else ""
    what = mend() or NO_WAY
    log.warning("%skernels are not compiled for this processor: %s; %s", whose, SLOW, what)


def mend() -> str | None:
    """Return what gives this process the kernels that it lacks; ``None`` if nothing does."""
    if not library.SUPPORTED or target() is None:
        return None
    return "tenonnx warmup" if has_numba() else f"{NUMBA}, then tenonnx warmup"


def kernels() -> list[Remark]:
    """Return the origin of this process's kernels, all of which have been declared."""
    own = _own_kernels()
    if jit_mode() == "0" or library.current() is None:
        return [own]
    return [own, *map(_kernels_of, plugin_packages())]


def _own_kernels() -> Remark:
    if jit_mode() == "0":
        return f"no kernels, because TENONNX_JIT is 0: {SLOW}", "unset TENONNX_JIT"
    if library.current() is not None or library.find() is not None:
        return _kernels_of(OWN)
    if (kinds := installed_kinds()) and (lacking := lacks(kinds[-1])):
        missing = ", ".join(lacking)
        return f"the installed kernels need what this processor lacks, {missing}: {SLOW}", mend()
    return f"no kernels: {SLOW}", mend()


def _kernels_of(package: Package) -> Remark:
    own = "kernels" if package == OWN else f"kernels of {package.name}"
    if (found := library.find(package)) is None:
        return f"no {own}: {SLOW}", mend()
    if library.current(package) is None:
        return f"{found.path} cannot be used: {SLOW}", mend()
    file, chosen = os.path.basename(found.path), target()
    kind = file.removesuffix(SUFFIX) if found.like or not chosen else chosen.kind
    text = f"{own} for {kind}, in {found.path}"
    mine = (each for each in KERNELS.values() if each.package == package.name)
    lacking = [str(kernel) for kernel in mine if kernel.run is None]
    return (f"{text}, which lacks {', '.join(lacking)}", mend()) if lacking else (text, None)
