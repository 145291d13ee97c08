"""What the processor is and can do, as far as kernels care. Imported without numba."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import NamedTuple

from tenonnx.errors import InvalidArgument
from tenonnx.weights.trusted import read_trusted, require_installed

logger = logging.getLogger("tenonnx.jit")

VARIABLE = "TENONNX_PROCESSOR"
NATIVE = "native"

INSTALLED = "tenonnx_kernels"
"""A package of images, which ``tools/kernels_wheel.py`` makes."""
KINDS = "processors"
"""A file in it: the kinds of processor that they are for, the best first."""

V3 = frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"])
V4 = V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
LEVELS = {"x86-64-v3": V3, "x86-64-v4": V4}
"""Levels of the x86-64 ABI by LLVM's names, and the flags by which Linux tells that one is met."""


class Target(NamedTuple):
    """A kind of processor, as numba's variables describe it.

    Attributes:
        name: What LLVM calls it.
        features: What it has besides, as LLVM writes it: ``+avx512vnni,+avx512vbmi``.
    """

    name: str
    features: str

    @property
    def flags(self) -> frozenset[str]:
        """What it can do, as Linux calls it but for underscores."""
        return LEVELS[self.name] | frozenset(self.features.replace("+", "").split(",")) - {""}


@functools.cache
def target() -> Target | None:
    """Returns what kernels are compiled for if that is not this processor.

    ``VARIABLE`` says it, or else the images that are installed. It is this one, with a warning, if
    that is not of such a kind.

    Raises:
        InvalidArgument: There is no such kind.
    """
    asked = os.environ.get(VARIABLE) or _best_installed()
    if asked == NATIVE:
        return None
    found = _parse(asked)
    if lacking := _lacks(found):
        logger.warning(
            "this processor is no %s (it lacks %s): kernels are compiled for what it is",
            asked,
            ", ".join(lacking),
        )
        return None
    return found


@functools.cache
def installed() -> Path | None:
    """Returns the folder of images that is installed, if one is."""
    spec = importlib.util.find_spec(INSTALLED)
    if spec is None or not spec.origin:
        return None
    folder = Path(spec.origin).parent
    try:
        require_installed(folder, own_code())
    except OSError:
        return None
    return folder


@functools.cache
def own_code() -> os.stat_result:
    """Returns the status of this folder: who can write code here can write kernels as well."""
    return Path(__file__).parent.stat()


def _best_installed() -> str:
    """Returns the first kind of processor that images are installed for and this one is of."""
    folder = installed()
    try:
        kinds = (
            []
            if folder is None
            else read_trusted(folder / KINDS, own_code()).decode("ascii").split()
        )
        return next((kind for kind in kinds if not _lacks(_parse(kind))), NATIVE)
    except (OSError, UnicodeError, InvalidArgument) as error:
        logger.warning("the kernels in %s are not used: install them anew: %s", folder, error)
        return NATIVE


def _parse(kind: str) -> Target:
    name, *more = kind.split("+")
    if name not in LEVELS or not all(word.isalnum() for word in more):
        raise InvalidArgument(
            f"{VARIABLE} is {kind!r}; expected {NATIVE}, {' or '.join(LEVELS)}, "
            "the last two with what they need not have, as in x86-64-v4+avx512vnni"
        )
    return Target(name, ",".join(f"+{word}" for word in more))


def _lacks(kind: Target) -> list[str]:
    """Returns what a kind of processor has and this one has not."""
    return sorted(kind.flags - _own_features())


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
    """Returns the processor that kernels are compiled for: this one, unless variables say else."""
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
    if (chosen := target()) is not None:
        return chosen.flags
    given = os.environ.get("NUMBA_CPU_FEATURES")
    if given is not None:
        return frozenset(item[1:] for item in given.split(",") if item.startswith("+"))
    if os.environ.get("NUMBA_CPU_NAME", "").lower() == "generic":
        return frozenset()
    return _own_features()


def _own_features() -> frozenset[str]:
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
