"""Modules of tenonnx from one file, which an earlier process kept beside its plans.

For each module Python searches folders, and opens, reads and checks a file of bytecode. For the
sixty modules that open a kept plan, these are two fifths of all system calls. One mapped file has
the bytecode of all modules that sessions of earlier processes imported; ``keeping_modules`` writes
it.

A module is taken from there if its source is in the state that it was in, as with Python's own
bytecode; otherwise from its folder. There, a plain module with bytecode that fits is found with two
looks at files, where Python makes six; all others are left to Python. So are found the modules of
packages that every session imports. The first module of a package, which says where the others are,
always comes from its folder.
"""

from __future__ import annotations

import functools
import marshal
import os
import struct
import sys
from collections.abc import Sequence
from importlib._bootstrap_external import MAGIC_NUMBER  # importlib.util's: its import takes longer
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import TypeAlias

from tenonnx.digest import BYTES, digest
from tenonnx.lazy_modules import logger
from tenonnx.weights.folder import MODULES, cache_root, note_use
from tenonnx.weights.mapping import Mapping
from tenonnx.weights.trusted import open_trusted

MARK = b"modules2"
FRONT = struct.Struct(f"<8s{2 * BYTES}sIQ")
"""The mark, the digest and the bytes of the list that follows, and the bytes of all."""

PACKAGE = "tenonnx"

OTHERS = "google.protobuf.", "onnx.", "onnx_ir.", "pluggy."
"""The beginnings of names of modules that every session imports with its first model."""

BYTECODE = struct.Struct("<4sIII")
"""The front of a file of bytecode: Python's number, how it is checked, its source's state."""

LARGEST = 1 << 16
"""Bytes of a file of bytecode that is read in one go; any of this project's is half of it.

More would be memory that is mapped for each file anew."""

log = logger("tenonnx.plans")

State: TypeAlias = tuple[int, int, int, int]

Entry: TypeAlias = tuple[str, "str | None", bool, State, int, int]
"""Of a module: its source and bytecode, whether it is a package, the source's state; and where its
code is behind the list, and how many bytes. These have no checksum, as Python's have none."""


class Loader(SourceFileLoader):
    """Loads a module whose code is there already, from the file of its source to all who ask."""

    kept: memoryview | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        """Returns the kept code, and later, should somebody ask, what Python has."""
        kept, self.kept = self.kept, None
        return super().get_code(fullname) if kept is None else marshal.loads(kept)


class Direct(SourceFileLoader):
    """Loads a module from its folder: its bytecode, if that fits the source."""

    status: os.stat_result | None = None
    bytecode = ""

    def get_code(self, fullname: str) -> CodeType | None:
        """Returns the code, by Python's own way unless it is there already and plain."""
        status, self.status = self.status, None
        code = None if status is None else _read(self.bytecode, status)
        if code is None or code.co_filename != self.path:
            return super().get_code(fullname)
        return code


def _read(bytecode: str, source: os.stat_result) -> CodeType | None:
    """Returns the code in a file of bytecode if it is of a source in this state."""
    try:
        descriptor = os.open(bytecode, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    try:
        content = os.read(descriptor, LARGEST)
    finally:
        os.close(descriptor)
    state = int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF
    if len(content) == LARGEST or content[:16] != BYTECODE.pack(MAGIC_NUMBER, 0, *state):
        return None
    return marshal.loads(memoryview(content)[16:])  # type: ignore[no-any-return] # as it began


class DirectFinder:
    """Finds modules of ours and of ``OTHERS`` that are a file in the folder of their package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of such a module; ``None`` for others, which Python looks for."""
        is_ours = fullname.startswith(PACKAGE)
        if path is None or not (is_ours or fullname.startswith(OTHERS)) or len(path) != 1:
            return None
        name, folder = fullname.rpartition(".")[2], path[0]
        if not (is_ours or _is_alone(name, folder)):
            return None
        source = f"{folder}/{name}.py"
        try:
            status = os.stat(source)
        except OSError:
            return None
        loader = Direct(fullname, source)
        loader.status = status
        loader.bytecode = f"{folder}/__pycache__/{name}.{sys.implementation.cache_tag}.pyc"
        spec = ModuleSpec(fullname, loader, origin=source)
        spec.has_location, spec.cached = True, loader.bytecode
        return spec


def _is_alone(name: str, folder: str) -> bool:
    """Says whether no package and no machine code in a folder comes before a module's source."""
    names = _names(folder)
    return names.isdisjoint([name, *(name + suffix for suffix in EXTENSION_SUFFIXES)])


@functools.cache
def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


class Finder:
    """Finds modules in a file.

    Args:
        path: The file.

    Raises:
        OSError: It is not there, or not trusted.
        ValueError: It is damaged.
    """

    def __init__(self, path: str) -> None:
        mapping = Mapping(path, kind="derived", opening=open_trusted)
        whole = mapping.buffer
        mark, told, length, size = FRONT.unpack_from(whole)
        self._start = FRONT.size + length
        listed = whole[FRONT.size : self._start]
        if mark != MARK or size != len(whole) or digest(listed).encode() != told:
            raise ValueError("it is not a whole file of modules")
        self.entries: dict[str, Entry] = marshal.loads(listed)
        self._whole = whole
        note_use(path, mapping.identity.mtime_ns)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of a module that is kept and has not changed; ``None`` for others."""
        if path is None or (entry := self.entries.get(fullname)) is None:
            return None
        source, bytecode, is_package, state = entry[:4]
        where = source.removesuffix(f"{os.sep}__init__.py") if is_package else source
        if os.path.dirname(where) not in path[:1] or state_of(source) != state:
            return None
        loader = Loader(fullname, source)
        loader.kept = self.code(entry)
        spec = ModuleSpec(fullname, loader, origin=source)
        if is_package:
            spec.submodule_search_locations = [where]
        spec.has_location, spec.cached = True, bytecode
        return spec

    def code(self, entry: Entry) -> memoryview:
        """Returns a module's code, marshalled."""
        start = self._start + entry[4]
        return self._whole[start : start + entry[5]]


_finder: Finder | None = None
_installed = False


def install() -> None:
    """Has modules found in the file from now on, if there is one."""
    global _finder, _installed
    if _installed:
        return
    _installed = True
    if PathFinder not in sys.meta_path:
        return
    # Finders of others, such as those of test runners, which rewrite modules, come before.
    place = sys.meta_path.index(PathFinder)
    if sys.pycache_prefix is None and not sys.flags.optimize:  # else bytecode has other names
        sys.meta_path.insert(place, DirectFinder())
    if (path := path_of()) is None:
        return
    try:
        _finder = Finder(path)
    except OSError:
        return
    except Exception as error:  # a damaged file may say anything
        log.info("%s is damaged and will be made again: %s", path, error)
        return
    sys.meta_path.insert(place, _finder)


def path_of() -> str | None:
    """Returns where the file is or is to be; ``None`` if nothing is to be kept."""
    if "0" in (os.environ.get("TENONNX_CACHE"), os.environ.get("TENONNX_PLANS")):
        return None
    facts = MARK, sys.version, sys.flags.optimize, sys.pycache_prefix, os.path.dirname(__file__)
    return os.path.join(cache_root(), "plans", digest(repr(facts))[:48] + MODULES)


def state_of(source: str) -> State | None:
    """Returns what tells a source's state from every other; ``None`` if it is not there."""
    try:
        status = os.stat(source)
    except OSError:
        return None
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
