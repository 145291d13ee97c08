"""The processor's name and features, as far as kernels use them. Imported without numba."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import sys
from collections.abc import Iterable
from typing import NamedTuple

from tenonnx.errors import InvalidArgument

log = logging.getLogger("tenonnx.jit")

VARIABLE = "TENONNX_PROCESSOR"

# The folder of `tenonnx_cpu`.
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))

# The folder of an installed package's libraries of kernels: one for each target CPU.
INSTALLED = os.path.join(PACKAGE, "kernels")

# The end of a library's name; the target CPU's is before it.
SUFFIX = ".so"

V2 = frozenset(["cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"])
V3 = frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"])
V4 = V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])


class Level(NamedTuple):
    """The common properties of an architecture's processors.

    Attributes:
        architecture: As Linux and LLVM call it.
        name: What LLVM calls such a processor.
        flags: By which Linux tells that one is such.
    """

    architecture: str
    name: str
    flags: frozenset[str]


LEVELS = {
    "x86-64-v2": Level("x86_64", "x86-64-v2", V2),
    "x86-64-v3": Level("x86_64", "x86-64-v3", V3),
    "x86-64-v4": Level("x86_64", "x86-64-v4", V4),
    "armv8-a": Level("aarch64", "generic", frozenset()),  # Linux runs on no other
}

# Linux's names of features whose names in LLVM differ by more than underscores.
LINUX = {
    "dotprod": "asimddp", "fullfp16": "asimdhp", "lse": "atomics",
    "amx-int8": "amxint8", "amx-bf16": "amxbf16",
}  # fmt: skip

# Of AMX: tiles, and products of bytes and of bfloat16 in them.
TILES = frozenset(["amxint8", "amxbf16"])

# Linux's numbers, on x86-64, of a call, of its request for a part of the processor's state, and of
# the part that tiles are.
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18

# Entries of Linux's auxiliary vector on AArch64, and their bits.
CAPABILITIES = {"asimddp": (16, 20), "i8mm": (26, 13)}

# The target CPUs to choose from, of each architecture the best first: wheels may lack some.
KINDS = (
    "x86-64-v4+avx512vnni+avx512vbmi+avx512bf16+amx-int8+amx-bf16",
    "x86-64-v4+avx512vnni+avx512vbmi+avx512bf16",
    "x86-64-v4+avx512vnni+avx512vbmi",
    "x86-64-v4+avx512vnni",
    "x86-64-v4",
    "x86-64-v3+avxvnni",
    "x86-64-v3",
    "x86-64-v2",
    "armv8-a+dotprod+i8mm",
    "armv8-a+dotprod",
    "armv8-a",
)


class Target(NamedTuple):
    """A target CPU: an instruction set and its features.

    Attributes:
        kind: What it is called: a level, and what it has besides: ``x86-64-v4+avx512vnni``.
        level: The level.
        features: What it has besides, as LLVM writes it: ``+avx512vnni,+avx512vbmi``.
    """

    kind: str
    level: Level
    features: str

    @property
    def flags(self) -> frozenset[str]:
        """Its features by Linux's names, without underscores."""
        more = self.features.replace("+", "").split(",")
        return self.level.flags | {LINUX.get(word, word) for word in more if word}


_given: Target | None = None


def compile_for(kind: str) -> None:
    """Have this process compile for a target CPU, which its own may not be.

    It then loads no kernel. To be called before anything asks for the processor.
    """
    global _given
    _given = parse(kind)


@functools.cache
def target() -> Target | None:
    """Return the target CPU of this process's kernels; ``None`` if there is none that it runs.

    ``VARIABLE`` names it; by default it is the best that a library is installed for, or else the
    best that this processor supports.

    Raises:
        InvalidArgument: There is none of that name.
    """
    if _given is not None:
        return _given
    if asked := os.environ.get(VARIABLE):
        found = parse(asked)
        if not (lacking := lacks(found)):
            return found
        log.warning(
            "%s is not heeded: this processor is not %s (it lacks %s)",
            VARIABLE,
            asked,
            ", ".join(lacking),
        )
    return _best_installed() or best_of(map(parse, KINDS))


def installed_kinds() -> list[Target]:
    """Return the target CPUs that libraries are installed for, the best first."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(INSTALLED):
            if entry.name.endswith(SUFFIX):
                with contextlib.suppress(InvalidArgument):
                    found.append(parse(entry.name.removesuffix(SUFFIX)))
    return sorted(found, key=lambda kind: (-len(kind.flags), kind))


def best_of(kinds: Iterable[Target]) -> Target | None:
    """Return the first of some target CPUs whose code this one runs."""
    return next((kind for kind in kinds if not lacks(kind)), None)


def _best_installed() -> Target | None:
    kinds = installed_kinds()
    found = best_of(kinds)
    if kinds and found is None:
        log.warning(
            "the installed kernels are not used: this processor is not %s (it lacks %s)",
            kinds[-1].kind,
            ", ".join(lacks(kinds[-1])),
        )
    return found


def parse(kind: str) -> Target:
    """Return a target CPU by its name.

    Raises:
        InvalidArgument: There is no such kind.
    """
    name, *more = kind.split("+")
    if name not in LEVELS or not all(word.replace("-", "").isalnum() for word in more):
        raise InvalidArgument(
            f"{VARIABLE} is {kind!r}; expected {' or '.join(LEVELS)}, "
            "or one with further features, as in x86-64-v4+avx512vnni"
        )
    return Target(kind, LEVELS[name], ",".join(f"+{word}" for word in more))


def lacks(kind: Target) -> list[str]:
    """Return the features of a target CPU that this one lacks."""
    if kind.level.architecture != architecture():
        return [kind.level.architecture]
    return sorted(kind.flags - _own_features())


class Cpu(NamedTuple):
    """The vector unit that kernels are written for.

    Attributes:
        lanes: float32 elements in the vectors that kernels use.
        registers: How many such vectors there are.
        vnni: Instructions for sums in int32 of products of uint8 by int8: ``"avx512"``, ``"avx"``,
            ``"i8mm"``, ``"dotprod"`` (of int8 alone) or ``""``.
        amx: Whether it has AMX's tiles, of bytes and of bfloat16, and the system lends them.
        bf16: Whether it converts to bfloat16, and sums its products in float32; with AMX, always.
    """

    lanes: int
    registers: int
    vnni: str
    amx: bool = False
    bf16: bool = False

    @property
    def pairs(self) -> bool:
        """Whether it gains from products of uint8 by int8 whose adjacent sums fit int16."""
        return self.lanes == 8 and not self.vnni

    @property
    def has_wide_cache(self) -> bool:
        """Whether the second-level cache is known to have 2 MiB, as with AMX, not 1 MiB or less."""
        return self.amx


@functools.cache
def cpu() -> Cpu:
    """Return the processor that kernels are compiled for."""
    chosen = target()
    features = frozenset[str]() if chosen is None else chosen.flags
    if {"avx512f", "avx512bw", "avx512vl"} <= features:
        vnni = "avx512" if "avx512vnni" in features else ""
        bf16 = "avx512bf16" in features
        return Cpu(16, 32, vnni, bool(vnni) and bf16 and features >= TILES, bf16)
    if {"avx2", "fma"} <= features:
        return Cpu(8, 16, "avx" if "avxvnni" in features else "")
    if compiled_architecture() in ("aarch64", "arm64"):
        dots = "i8mm" if "i8mm" in features else "dotprod" if "asimddp" in features else ""
        return Cpu(4, 32, dots)
    return Cpu(4, 16, "")


def compiled_architecture() -> str:
    """Return the architecture that kernels are compiled for."""
    return chosen.level.architecture if (chosen := target()) else architecture()


def architecture() -> str:
    """Return what the system calls the processor's instructions."""
    if sys.platform != "win32":
        return os.uname().machine
    import platform

    return platform.machine()


def _own_features() -> frozenset[str]:
    name = "Features" if architecture() == "aarch64" else "flags"
    if flags := description().get(name):
        # Linux writes avx512_vnni where LLVM writes avx512vnni.
        listed, asked = flags.replace("_", "").split(), _asked_by_numpy()
        found = frozenset(name for name in listed if asked.get(name.upper(), True))
        return found if found.isdisjoint(TILES) or _lends_tiles() else found - TILES
    return _told() or _asked()


@functools.cache
def _lends_tiles() -> bool:
    """Ask Linux for tiles, which this process and those that it forks may use from then on.

    Linux refuses, or knows no such request, in some containers and virtual machines, and where a
    thread has a stack for signals that tiles do not fit.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        call = ctypes.CDLL(None).syscall
    except (AttributeError, OSError, TypeError):  # a C library that is not glibc's
        return False
    return not call(*map(ctypes.c_long, (ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA)))


def _told() -> frozenset[str]:
    """Return what Linux tells a process on AArch64, also under an emulator that tells no more."""
    try:
        with open("/proc/self/auxv", "rb") as file:
            words = memoryview(file.read()).cast("Q").tolist()
    except (OSError, TypeError):  # TypeError: it is of words of 32 bits
        return frozenset()
    entries = dict(zip(words[::2], words[1::2], strict=True))
    return frozenset(
        name for name, (entry, bit) in CAPABILITIES.items() if entries.get(entry, 0) >> bit & 1
    )


def _asked_by_numpy() -> dict[str, bool]:
    """Return what numpy found: an emulator's processor is not the one that Linux tells of."""
    with contextlib.suppress(ImportError):
        found = importlib.import_module("numpy._core._multiarray_umath")
        return dict(getattr(found, "__cpu_features__", {}))
    return {}


def _asked() -> frozenset[str]:
    """Return what LLVM finds, where the system does not tell."""
    try:
        import llvmlite.binding as llvm
    except ImportError:
        return frozenset()
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


@functools.cache
def description() -> dict[str, str]:
    """Return what Linux tells of the first processor; nothing elsewhere."""
    facts: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                name, colon, text = line.partition(":")
                if not colon:
                    break
                facts[name.strip()] = text.strip()
    except OSError:
        pass
    return facts
