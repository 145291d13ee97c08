"""The library of compiled kernels: where it is, whether it is to be trusted, and how it is opened.

It is a shared library, one for each target CPU, whose symbols Python calls: an installed one lies
in the package whose kernels it has, like other packages' extension modules, one that was built
later in the user's cache. Nothing here imports numba.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import logging
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx.process.distributions import UNRELEASED, release
from tenonnx.weights.folder import cache_root, note_use
from tenonnx.weights.trusted import is_trusted, open_trusted, require_installed
from tenonnx_cpu.jit.code.cpu import INSTALLED, SUFFIX, Target, parse, target
from tenonnx_cpu.jit.code.symbols import IDENTITY, NDARRAY, binary_interface
from tenonnx_cpu.jit.packages import OWN, Package
from tenonnx_cpu.jit.threads.memory import RESUME, start

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("tenonnx.jit")

# Whether libraries of kernels are built for this system.
SUPPORTED = sys.platform == "linux"

# The variable that names another folder for libraries.
KERNELS_VARIABLE = "TENONNX_KERNELS_DIR"

# An ELF file's header, of 64 bits and little-endian: System V ABI, "ELF Header".
HEADER = struct.Struct("<16s2HI3QI6H")

# The functions of the thread pool that kernels and their entries call.
POOL_FUNCTIONS = ("tenonnx_pool_share", "tenonnx_pool_begin", "tenonnx_pool_look", RESUME)

# The symbol of a library's table of addresses of these.
POOL_TABLE = "tenonnx_pool_functions"

# CPython's flag of functions that take an array of arguments, and their number.
METH_FASTCALL = 0x80


class Unusable(OSError):
    """A file is not a library of kernels for this process."""


class Found(NamedTuple):
    """A library that is there.

    Attributes:
        path: Its file.
        like: The status of its package's folder, if it was installed there: who can write code
            there can write kernels as well.
    """

    path: str
    like: os.stat_result | None


def kernels_folder() -> str:
    """Return the folder of libraries that are built on this machine."""
    return os.environ.get(KERNELS_VARIABLE) or os.path.join(cache_root(), "kernels")


def cached_path(kind: Target, package: Package = OWN) -> str:
    """Return where the library for a target CPU is, once it is built from the sources at hand."""
    from tenonnx_cpu.jit.aot.sources import digest_of_all

    name = f"{kind.kind}-{digest_of_all(package)[:16]}{SUFFIX}"
    name = name if package == OWN else f"{package.name}-{name}"
    return os.path.join(kernels_folder(), name)


@functools.cache
def find(package: Package = OWN) -> Found | None:
    """Return a package's library for this process; ``None`` if there is none.

    One that could not be opened counts as none: where an installed one does not fit, what
    ``tenonnx warmup`` builds takes its place.
    """
    chosen = target() if SUPPORTED else None
    if chosen is None:
        return None
    installed = _installed(package, chosen)
    if installed is not None and installed not in _refused:
        return Found(installed, os.stat(package.root))
    path = cached_path(chosen, package)
    return Found(path, None) if path not in _refused and os.path.exists(path) else None


def installed_folder(package: Package) -> str:
    """Return the folder of the libraries that a package is installed with."""
    return INSTALLED if package == OWN else os.path.join(package.root, os.path.basename(INSTALLED))


def _installed(package: Package, chosen: Target) -> str | None:
    """Return the library that a package is installed with for a target CPU.

    A plug-in's may be for one with fewer features: its Python code does not depend on them, as
    this package's does.
    """
    folder = installed_folder(package)
    if os.path.exists(path := os.path.join(folder, f"{chosen.kind}{SUFFIX}")):
        return path
    if package == OWN or not os.path.isdir(folder):
        return None
    names = (name for name in os.listdir(folder) if name.endswith(SUFFIX))
    kinds = [parse(name.removesuffix(SUFFIX)) for name in names]
    fit = [
        kind
        for kind in kinds
        if kind.level.architecture == chosen.level.architecture and kind.flags <= chosen.flags
    ]
    best = max(fit, key=lambda kind: (len(kind.flags), kind), default=None)
    return None if best is None else os.path.join(folder, f"{best.kind}{SUFFIX}")


def current(package: Package = OWN) -> Library | None:
    """Return this process's library of a package's kernels, opened; ``None`` if it cannot be.

    The log says why.
    """
    if package.name not in _opened:
        with _lock:
            if package.name not in _opened:
                _opened[package.name] = _open(package)
    return _opened[package.name]


def _open(package: Package) -> Library | None:
    host = None if package == OWN else current()
    if package != OWN and host is None:
        return None
    while (found := find(package)) is not None:
        try:
            if found.like is not None:
                require_installed(installed_folder(package), found.like)
            else:
                note_use(found.path, os.stat(found.path).st_mtime_ns)
            return Library(found.path, found.like, host)
        except OSError as error:
            log.warning("%s is not used: %s", found.path, error)
            _refused.add(found.path)
            find.cache_clear()
    return None


# This process's libraries that have been looked for, by their packages.
_opened: dict[str, Library | None] = {}
# The files that could not be opened.
_refused: set[str] = set()
_lock = threading.RLock()  # a signal's handler may load kernels, too

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


def forget() -> None:
    """Look for a library again when one is asked for: another one has been built."""
    find.cache_clear()
    _opened.clear()
    _refused.clear()


def fingerprint() -> str:
    """Return what no other library of this process's would have; what is cached depends on it."""
    if (found := find()) is None:
        return ""
    with contextlib.suppress(OSError):
        status = os.stat(found.path)
        return f"{found.path} {status.st_size} {status.st_mtime_ns}"
    return found.path


def cached_files() -> Iterator[Path]:
    """Yield the files that are kept: libraries, and objects to link others from."""
    from pathlib import Path

    if is_trusted(kernels_folder()):
        # This passes over folders that another process, which links, deletes meanwhile.
        for folder, _, names in os.walk(kernels_folder()):
            yield from (Path(folder, name) for name in names)


_openings = itertools.count()


class Library:
    """A shared library that is open, for as long as the process lives.

    Args:
        path: Its file.
        like: As in ``open_trusted``.
        host: The library whose thread pool it has; ``None`` if it has one of its own.

    Attributes:
        pool: The memory of its thread pool (``threads.memory``).

    Raises:
        Untrusted: Somebody else may have written it.
        Unusable: It is no whole library, or another one.
        OSError: It cannot be read or mapped.
    """

    def __init__(
        self, path: str, like: os.stat_result | None = None, host: Library | None = None
    ) -> None:
        descriptor = open_trusted(path, like)
        try:
            _require_whole(descriptor)
            # What is opened is what was checked. The system knows a library by this name, so no
            # two may have the same, as descriptors that are closed would give them.
            name = f"/proc/self/fd/{'./' * next(_openings)}{descriptor}"
            self._library = ctypes.CDLL(name, os.RTLD_NOW | os.RTLD_LOCAL)
        finally:
            os.close(descriptor)
        try:
            _require_fit(ctypes.string_at(self._address(IDENTITY)).decode())
            ctypes.c_void_p.in_dll(self._library, NDARRAY).value = id(np.ndarray)
            if host is not None:
                size = ctypes.sizeof(ctypes.c_void_p) * len(POOL_FUNCTIONS)
                ctypes.memmove(self._address(POOL_TABLE), host._address(POOL_TABLE), size)
        except (AttributeError, ValueError) as error:
            raise Unusable(f"it is no library of kernels ({error})") from None
        self.pool: Any = start(self) if host is None else host.pool

    def _address(self, symbol: str) -> int:
        found = ctypes.cast(self._library[symbol], ctypes.c_void_p).value
        assert found is not None, "symbols have addresses"
        return found

    def plain_function(self, symbol: str) -> Callable[[int], None]:
        """Return one of its functions of an integer."""
        made: Callable[[int], None] = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._address(symbol))
        return made

    def kernel(self, name: str) -> Callable[..., Any] | None:
        """Return a kernel as a function of CPython's; ``None`` if the library lacks it."""
        try:
            return builtin(name.rpartition(".")[2], self._address(name))
        except AttributeError:
            return None


def _require_fit(identity: str) -> None:
    """Make sure that a library is for this process, and of the release that it is installed with.

    Args:
        identity: What it was built for, and the release: none of a library that its name describes.
    """
    interface, _, version = identity.partition("; ")
    if interface != (expected := binary_interface()):
        raise Unusable(f"it was built for {interface}; expected {expected}")
    if version and (own := release()) not in (version, UNRELEASED):
        raise Unusable(f"it was built for tenonnx {version}; this is {own}: install it anew")


def _require_whole(descriptor: int) -> None:
    """Make sure that a file ends where its table of sections does, the last thing in it.

    To read beyond the end of a library that was cut ends the process.
    """
    front = os.pread(descriptor, HEADER.size, 0)
    if len(front) == HEADER.size:
        ident, _, _, _, _, _, sections, _, _, _, _, size, count, _ = HEADER.unpack(front)
        whole = sections + size * count
        if ident.startswith(b"\x7fELF\x02\x01") and whole == os.fstat(descriptor).st_size:
            return
    raise Unusable("it is not a whole library")


class _Method(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@functools.cache
def _method(name: str, address: int) -> _Method:
    method = _Method(name.encode(), address, METH_FASTCALL, None)
    # The function points to it for as long as it lives, which may be longer than any module does.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
    return method


def builtin(name: str, address: int, own: object = None) -> Callable[..., Any]:
    """Return a function whose calls go to machine code: CPython's ``METH_FASTCALL``.

    Args:
        name: Its name.
        address: Where the code is.
        own: What the code gets as its self; ``None`` for nothing.
    """
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    method = ctypes.addressof(_method(name, address))
    made: Callable[..., Any] = make(method, None if own is None else id(own), None)
    return made


def entry_of(function: Callable[..., Any]) -> int:
    """Return the address of such a function's machine code."""
    find = ctypes.pythonapi.PyCFunction_GetFunction
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.py_object]
    return int(find(function))
