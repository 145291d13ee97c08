"""Code objects: machine code as it lies in a file, and how a process gets it without a compiler.

A code object is code, which is position independent and stays as it is in the file, so that
processes share its pages, and data, whose pages a process makes its own by writing addresses there.
The code is never writable while it can be executed, and nothing is ever unloaded.

Symbols of elsewhere are those of code objects loaded before, of CPython and of the C library.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx.weights.trusted import open_trusted
from tenonnx_cpu.jit.code.cpu import architecture, installed, own_code

if TYPE_CHECKING:
    from tenonnx_cpu.jit.code.header import Header

SUPPORTED = sys.platform == "linux" and architecture() in ("x86_64", "aarch64")
"""Whether this machine's code is made into code objects; elsewhere numba keeps and calls it."""

FRONT = struct.Struct("<8sIIQ")
"""The beginning of a file: the mark, a checksum, bytes of the header and of all."""
MARK = b"tenonnx\2"
CHECKED = 12
"""The offset from which the checksum is computed."""

ADDRESS, LARGEST = struct.Struct("=Q"), (1 << 64) - 1
WRITABLE = 0x200
"""CPython's ``PyBUF_WRITE``."""

ENTRY = "tenonnx_entry"
"""The symbol of a kernel's code object: the function that Python calls."""

ARRAY = "tenonnx_ndarray"
"""The symbol of numpy's type of arrays."""


DAY = 24 * 3600
"""Seconds after which a file that is used is marked as used again."""


Path: TypeAlias = str | os.PathLike[str]


class Damaged(ValueError):
    """A file is not a code object, or not a whole one."""


class CodeObject(NamedTuple):
    """Machine code, and instructions for loading it. Offsets count from the code's beginning.

    Attributes:
        code: Whole pages, executed and read.
        data: What follows it, read and written.
        exports: Symbols that others may find, and where they are.
        inside: Where in ``data`` there is an offset that is to become an address.
        outside: Symbols of elsewhere, and where in ``data`` their addresses are to be.
        needs: Names of the code objects that define some of them.
        page: Bytes of a page.
    """

    code: bytes
    data: bytes
    exports: dict[str, int]
    inside: tuple[int, ...]
    outside: dict[str, tuple[int, ...]]
    needs: tuple[str, ...] = ()
    page: int = mmap.PAGESIZE

    def pack(self) -> bytes:
        """Return the code object as it lies in a file."""
        from tenonnx_cpu.jit.code.header import Header  # few processes have code objects to write

        header = Header(len(self.code), self.exports, self.inside, self.outside, self.needs)
        text = header.pack()
        start = -(-(FRONT.size + len(text)) // self.page) * self.page
        rest = text.ljust(start - FRONT.size, b"\0") + self.code + self.data
        whole = bytearray(FRONT.pack(MARK, 0, start, FRONT.size + len(rest)) + rest)
        struct.pack_into("<I", whole, len(MARK), zlib.crc32(whole[CHECKED:]))
        return bytes(whole)


_lock = threading.RLock()  # a signal's handler may load kernels, too
_loaded: dict[str, dict[str, int]] = {}
_symbols: dict[str, int] = {ARRAY: id(np.ndarray)}
_origins: dict[str, str] = {}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


def load(path: Path, exports: Iterable[str] = ()) -> dict[str, int]:
    """Load a code object and those it needs; return the addresses of what it exports.

    Args:
        path: Its file.
        exports: What is wanted of it.

    Raises:
        OSError: There is no such file, it is not trusted, or it cannot be mapped.
        Damaged: It is not a whole code object, or lacks what is wanted.
        LookupError: A symbol is nowhere.
    """
    with _lock:
        return _load(os.fspath(path), frozenset(exports), ())


def find(path: Path, exports: Iterable[str] = ()) -> dict[str, int] | None:
    """Load a code object like ``load``; return ``None`` if there is none of use."""
    try:
        return load(path, exports)
    except (OSError, Damaged, LookupError):
        return None


def place(path: Path, content: bytes) -> dict[str, int]:
    """Load a code object that has no file, by the name that its file would have; see ``load``."""
    path = os.fspath(path)
    name = os.path.basename(path)
    with _lock:
        if name not in _loaded:
            base, size = _map(len(content), content), len(content)
            _enter(path, base, size, frozenset(), (name,), whole=False)
        return _loaded[name]


def define(name: str, address: int) -> None:
    """Make a symbol known that lies in no code object."""
    _symbols[name] = address


def address_of(name: str) -> int:
    """Return the address of a symbol that a code object exports or that was defined."""
    return _symbols[name]


def promise(file: str, names: Iterable[str]) -> dict[str, int]:
    """Have a code object that is not loaded export symbols, as far as others name it."""
    _origins.update(dict.fromkeys(names, file))
    return dict.fromkeys(names, 0)


def origin(name: str) -> str | None:
    """Return the name of the code object that exports a symbol."""
    return _origins.get(name)


def _load(path: str, wanted: Set[str], above: tuple[str, ...]) -> dict[str, int]:
    """Load a code object for those above it, which need it."""
    folder, name = os.path.split(path)
    if name in above:
        raise Damaged(f"{name} needs itself")
    if name not in _loaded:
        like = own_code() if folder == installed() else None
        descriptor = open_trusted(path, like)
        try:
            status = os.fstat(descriptor)
            size = status.st_size
            if size < FRONT.size:
                raise Damaged(f"{name} is not a whole code object")
            base = _map(size, descriptor)
        finally:
            os.close(descriptor)
        _enter(path, base, size, wanted, (*above, name), whole=like is not None)
        if time.time() - status.st_mtime > DAY:
            with contextlib.suppress(OSError):
                os.utime(path)  # so that it is known to be in use
    if not wanted <= _loaded[name].keys():
        raise Damaged(f"{name} is another code object")
    return _loaded[name]


def _enter(
    path: str, base: int, size: int, wanted: Set[str], above: tuple[str, ...], *, whole: bool
) -> None:
    """Make a mapped code object ready; one that is of no use is unmapped."""
    own = os.path.basename(path)
    try:
        header, start = _header(own, base, size, whole=whole)
        if not wanted <= header.exports.keys():
            raise Damaged(f"{own} is another code object")
        for name in header.needs:
            if name not in _loaded:
                _load(_beside(path, name), frozenset(), above)
        found = {name: _find(name) for name in header.outside}
        base = _make_executable(base, size, start, header.code)
    except BaseException:
        _system().munmap(base, size)
        raise
    code, memory = base + start, _memory(base, size)
    for word in header.inside:
        (offset,) = ADDRESS.unpack_from(memory, start + word)
        ADDRESS.pack_into(memory, start + word, (code + offset) & LARGEST)
    for name, words in header.outside.items():
        for word in words:
            ADDRESS.pack_into(memory, start + word, found[name])
    exports = {name: code + offset for name, offset in header.exports.items()}
    _symbols.update(exports)
    _origins.update(dict.fromkeys(exports, own))
    _loaded[own] = exports


def _beside(path: str, name: str) -> str:
    """Return where the code object is that another one needs."""
    folder = installed()
    if folder is not None and os.path.exists(there := os.path.join(folder, name)):
        return there
    return os.path.join(os.path.dirname(path), name)


def _header(name: str, base: int, size: int, *, whole: bool) -> tuple[Header, int]:
    """Return a code object's header, and where its code begins.

    Args:
        name: The code object's.
        base: Where it is.
        size: Its bytes.
        whole: It is as whole as the Python code beside it, which has no checksum either.
    """
    from tenonnx_cpu.jit.code.header import unpack  # with the first code object

    content = _memory(base, size)
    mark, checksum, start, length = FRONT.unpack_from(content)
    is_whole = mark == MARK and length == size
    if not is_whole or (not whole and zlib.crc32(content[CHECKED:]) != checksum):
        raise Damaged(f"{name} is not a whole code object")
    if not FRONT.size < start <= size or start % mmap.PAGESIZE:
        raise Damaged(f"{name} has no header")
    return unpack(content[FRONT.size : start], size - start), start


def _memory(base: int, size: int) -> memoryview:
    """Return memory at an address; an array of ctypes would first make a type for each size."""
    made: memoryview = _view()(base, size, WRITABLE)
    return made


@functools.cache
def _view() -> Callable[..., Any]:
    view = ctypes.pythonapi.PyMemoryView_FromMemory
    view.restype = ctypes.py_object
    view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
    return view


@functools.cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None, use_errno=True)
    word, number = ctypes.c_void_p, ctypes.c_int
    system.mmap.argtypes = [word, ctypes.c_size_t, number, number, number, ctypes.c_long]
    system.mprotect.argtypes = [word, ctypes.c_size_t, number]
    system.munmap.argtypes = [word, ctypes.c_size_t]
    system.dlsym.argtypes = [word, ctypes.c_char_p]
    system.mmap.restype = system.dlsym.restype = word
    return system


def _map(size: int, source: int | bytes) -> int:
    """Return the address of private memory with the content of an open file, or with bytes."""
    is_file = isinstance(source, int)
    flags = mmap.MAP_PRIVATE | (0 if is_file else mmap.MAP_ANONYMOUS)
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    base: int = _system().mmap(None, size, rights, flags, source if is_file else -1, 0)
    if base == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "a code object cannot be mapped")
    if not is_file:
        ctypes.memmove(base, source, size)
    return base


def _make_executable(base: int, size: int, start: int, length: int) -> int:
    """Return where the code object is once its code can be executed."""
    rights = mmap.PROT_READ | mmap.PROT_EXEC
    if _system().mprotect(base + start, length, rights) == 0:
        return base
    # The file may lie where none is executed: memory of one's own may do.
    copy = _map(size, ctypes.string_at(base, size))
    if _system().mprotect(copy + start, length, rights):
        _system().munmap(copy, size)
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")
    _system().munmap(base, size)
    return copy


def _find(name: str) -> int:
    """Return the address of a symbol of elsewhere."""
    return _symbols.get(name) or _found_by_system(name)


@functools.cache
def _found_by_system(name: str) -> int:
    symbol = name.encode()
    found = _system().dlsym(None, symbol) or _system().dlsym(_mathematics(), symbol)
    if not found:
        raise LookupError(f"nothing here is called {name}")
    return int(found)


@functools.cache
def _mathematics() -> int:
    """Return a handle of the C library's functions of numbers, which not every program loads."""
    return ctypes.CDLL("libm.so.6")._handle


class _Method(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


METH_FASTCALL = 0x80


@functools.cache
def _method(name: str, address: int) -> _Method:
    method = _Method(name.encode(), address, METH_FASTCALL, None)
    # The function points to it for as long as it lives, which may be longer than any module does.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
    return method


def builtin(name: str, address: int, own: object = None) -> Callable[..., Any]:
    """Return a function whose calls go to machine code: CPython's ``METH_FASTCALL``.

    Args:
        name: What it is called.
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
