"""The kernels that code declares, and which of them there are. Nothing here imports numba.

Kernels are in a library that is installed or was built by ``tenonnx warmup`` (``library``). Where
there is none, or it lacks one, numpy computes. ``TENONNX_JIT`` is for developers: with ``0`` no
kernel is used.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, TypeAlias

from tenonnx.by_name import cacheable
from tenonnx.errors import InvalidArgument
from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.packages import OWN, package_of

VARIABLE = "TENONNX_JIT"
MODES = ("0", "1")

# States of a kernel; see `JitKernel.state`.
PREBUILT, CACHED, NUMPY = "prebuilt", "cached", "numpy"

# The reason why numpy computes in place of a kernel that `tenonnx warmup` would compile.
MISSING = "not compiled for this processor"

# Every kernel declared, in order of import, by `full_name`.
KERNELS: dict[str, JitKernel] = {}

# The kernels that a session asked for, and whether each was there.
Requested: TypeAlias = "dict[JitKernel, bool]"

# The session whose nodes are being compiled; the default is for kernels without a session.
ASKING: ContextVar[Requested] = ContextVar("tenonnx_asking", default={})  # noqa: B039 - shared


@cacheable
class JitKernel:
    """A handle on a compiled kernel, cheap to create and to ask. There is one for each kernel.

    Args:
        module: Which module of kernels has it, ``family.name``.
        name: The function in it, decorated with ``compiling.kernel``.
        package: The package of the module.

    Attributes:
        run: The compiled function; ``None`` if it is not there.
        is_requested: Whether a session asked for it.
    """

    __slots__ = ("is_requested", "module", "name", "package", "run")

    run: Callable[..., Any] | None
    module: str
    name: str
    package: str

    def __new__(cls, module: str, name: str, package: str = OWN.name) -> JitKernel:
        """Return the handle on this kernel."""
        known = full_name(f"{module}.{name}", package)
        if known not in KERNELS:
            made = KERNELS[known] = super().__new__(cls)
            made.module, made.name, made.package = module, name, package
            made.is_requested = False
        return KERNELS[known]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle which kernel it is."""
        return JitKernel, (self.module, self.name, self.package)

    def __getattr__(self, name: str) -> Any:
        """Look the kernel up; for a slot without a value, which only ``run`` can be."""
        if name != "run":
            raise AttributeError(f"kernels have no {name}")
        if jit_mode() == "0":
            return None
        opened = library.current(package_of(self.package))
        self.run = None if opened is None else opened.kernel(f"{self.module}.{self.name}")
        return self.run

    def request(self) -> None:
        """Note that a session wants the kernel, and whether it is there."""
        self.is_requested = True
        ASKING.get()[self] = self.run is not None

    def forget(self) -> None:
        """Look the kernel up again when it is wanted."""
        with contextlib.suppress(AttributeError):  # nobody wanted it yet
            del self.run

    @property
    def state(self) -> str:
        """``prebuilt`` or ``cached`` if it is there, by its origin; ``numpy`` if it is not."""
        if self.run is None:
            return NUMPY
        found = library.find(package_of(self.package))
        return PREBUILT if found is not None and found.like is not None else CACHED

    @property
    def reason(self) -> str:
        """Why it is not there; empty if it is."""
        return MISSING if self.run is None else ""

    def __str__(self) -> str:
        return full_name(f"{self.module}.{self.name}", self.package)


def full_name(kernel: str, package: str) -> str:
    """Return a kernel's name: ``norm.norms.softmax``, or ``tenonnx_vec:squash.squash``."""
    return kernel if package == OWN.name else f"{package}:{kernel}"


def split(name: str) -> tuple[str, str]:
    """Return the package of a kernel with such a name, and the kernel in it."""
    package, colon, kernel = name.partition(":")
    return (package, kernel) if colon else (OWN.name, name)


def changed(requested: Mapping[JitKernel, bool]) -> str | None:
    """Return why a plan cannot be used: which kernel was there when it was cached, or was not.

    Args:
        requested: The kernels that it was cached with, and whether each was there.
    """
    for each, was_there in requested.items():
        each.request()
        if (each.run is not None) != was_there:
            return f"the kernel {each} {'is missing' if was_there else 'is there now'}"
    return None


def jit_mode() -> str:
    """Return ``TENONNX_JIT``.

    Raises:
        InvalidArgument: It is none of the modes.
    """
    mode = os.environ.get(VARIABLE, "1") or "1"
    if mode not in MODES:
        raise InvalidArgument(f"{VARIABLE} is {mode!r}; expected {' or '.join(MODES)}")
    return mode


def has_kernels() -> bool:
    """Return whether there are compiled kernels, and they may be used."""
    return jit_mode() != "0" and library.current() is not None


def has_numba() -> bool:
    """Return whether numba is installed; do not import it."""
    return find_spec("numba") is not None
