"""What the processor is and can do, as far as kernels care. Imported without numba."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import NamedTuple


class Cpu(NamedTuple):
    """The vector unit that kernels are written for.

    Attributes:
        lanes: float32 elements in the vectors that kernels use.
        registers: How many such vectors there are.
        vnni: Products of int8 by uint8 summed in int32: ``"avx512"``, ``"avx"`` or ``""``.
    """

    lanes: int
    registers: int
    vnni: str


@functools.cache
def cpu() -> Cpu:
    """Returns the processor that numba compiles for: this one, unless its variables say else."""
    features = _features()
    if {"avx512f", "avx512bw", "avx512vl"} <= features:
        return Cpu(16, 32, "avx512" if "avx512vnni" in features else "")
    if {"avx2", "fma"} <= features:
        return Cpu(8, 16, "avx" if "avxvnni" in features else "")
    if architecture() in ("aarch64", "arm64"):
        return Cpu(4, 32, "")
    return Cpu(4, 16, "")


def architecture() -> str:
    """Returns what the system calls the processor's instructions."""
    if sys.platform != "win32":
        return os.uname().machine
    import platform  # takes longer to import than all else that is asked of the processor

    return platform.machine()


def _features() -> frozenset[str]:
    given = os.environ.get("NUMBA_CPU_FEATURES")
    if given is not None:
        return frozenset(item[1:] for item in given.split(",") if item.startswith("+"))
    if os.environ.get("NUMBA_CPU_NAME", "").lower() == "generic":
        return frozenset()
    if flags := description().get("flags"):
        # Linux writes avx512_vnni where LLVM writes avx512vnni.
        return frozenset(flags.replace("_", "").split())
    return _asked()


def _asked() -> frozenset[str]:
    """Returns what LLVM finds, where the system does not tell."""
    import llvmlite.binding as llvm

    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


@functools.cache
def description() -> dict[str, str]:
    """Returns what Linux tells of the first processor; nothing elsewhere."""
    facts: dict[str, str] = {}
    try:
        with Path("/proc/cpuinfo").open() as lines:
            for line in lines:
                name, colon, text = line.partition(":")
                if not colon:
                    break
                facts[name.strip()] = text.strip()
    except OSError:
        pass
    return facts
