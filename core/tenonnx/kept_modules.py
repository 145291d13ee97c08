"""Modules of tenonnx from one file, which an earlier process kept beside its plans.

For each module Python searches folders, and opens, reads and checks a file of bytecode. For the
sixty modules that open a kept plan, these are two fifths of all system calls. One mapped file has
the bytecode of all modules that sessions of earlier processes imported; ``keeping_modules`` writes
it.

A module is taken from there if its source is in the state that it was in, as with Python's own
bytecode; otherwise Python imports it as ever. The first module of a package, which says where the
others are, always comes from its folder.
"""

from __future__ import annotations

import marshal
import os
import struct
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
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
    if PathFinder not in sys.meta_path or (path := path_of()) is None:
        return
    try:
        _finder = Finder(path)
    except OSError:
        return
    except Exception as error:  # a damaged file may say anything
        log.info("%s is damaged and will be made again: %s", path, error)
        return
    # Finders of others, such as those of test runners, which rewrite modules, come before.
    sys.meta_path.insert(sys.meta_path.index(PathFinder), _finder)


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
