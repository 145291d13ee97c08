"""What the processor can do, as far as kernels care."""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass

import llvmlite.binding as llvm
from numba.core import config


@dataclass(frozen=True)
class Cpu:
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
    if "avx512f" in features and "avx512bw" in features and "avx512vl" in features:
        return Cpu(16, 32, "avx512" if "avx512vnni" in features else "")
    if "avx2" in features and "fma" in features:
        return Cpu(8, 16, "avx" if "avxvnni" in features else "")
    if platform.machine() in ("aarch64", "arm64"):
        return Cpu(4, 32, "")
    return Cpu(4, 16, "")


def _features() -> frozenset[str]:
    if config.CPU_FEATURES is not None:
        given = config.CPU_FEATURES.split(",")
        return frozenset(feature[1:] for feature in given if feature.startswith("+"))
    if config.CPU_NAME == "generic":
        return frozenset()
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
