"""The source of a kernel: a digest of its module and of all that it imports.

An index beside the kernels tells the digests of files that are as they were when it was written, so
that no process reads them again. One that is installed with kernels tells those of files that are
as they were installed; of others that have the same content it still tells what they import.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from tenonnx.weights.digest import digest
from tenonnx.weights.trusted import read_trusted, write_trusted
from tenonnx_cpu.jit.code.cpu import PACKAGE, own_code

IMPORT, WORD = r"(?m)^from (tenonnx_cpu[\w.]*) import (.*)", r"\w+"
"""Compiled when a file is looked through, which few processes do."""

ROOT = PACKAGE

INDEX = "sources"
"""The file beside installed kernels that tells what they were compiled from."""

INSTALLING = 600 * 10**9
"""Nanoseconds in which an installation writes its files; last of all the list of them."""

BEGAN = time.time_ns() - 10_000_000
"""The time of this process's first import of code; clocks of file systems are a little behind."""


def module_of(name: str) -> str:
    """Return the full name of a module of kernels: ``family.name``, or ``jit`` and more."""
    family, _, own = name.partition(".")
    package = os.path.basename(ROOT)
    return f"{package}.{name}" if family == "jit" else f"{package}.{family}.kernels.{own}"


def source_of(name: str) -> str:
    """Return the file of a module of kernels."""
    return f"{os.path.join(os.path.dirname(ROOT), *module_of(name).split('.'))}.py"


class Changed(RuntimeError):
    """Sources are others than this process began with: which of them it has imported is unknown.

    A caller's arguments then mean something else to a kernel, which looks at none of them.
    """


class Source(NamedTuple):
    """The facts about a file.

    Attributes:
        state: Its size and when it was changed; another one is another content. In an installed
            index its size alone, as it is not known when it will be written.
        content: A digest.
        imports: The files that it imports from this package, relative to it.
    """

    state: str
    content: str
    imports: tuple[str, ...]


class Sources:
    """The files of this package, read at most once, and not at all if the index knows them.

    Any thread may ask. None waits for another one: they may both read a file, and know the same of
    it; what is looked through is a copy, for others add to it meanwhile.

    Args:
        index: Where the index is, or is to be.
        installed: Another one, which came with the files.
        listed: When the list of installed files was written, by the clock of files; 0 for never.
    """

    def __init__(self, index: str, installed: str | None = None, listed: int = 0) -> None:
        self._index = index
        self._known: dict[str, Source] = {}
        self._indexed = _read(index)
        self._installed = {} if installed is None else _read(installed, own_code())
        self._listed = listed
        self._stamps: dict[str, str] = {}
        self._has_news = self._wrote_little = False

    def stamp(self, path: str) -> str:
        """Return a digest of a module of this package and of all that it imports from it.

        Raises:
            Changed: One of them has changed since this process began.
        """
        start = os.path.relpath(path, ROOT)
        _status(start)
        if start not in self._stamps:
            waiting, seen, known = [start], {start: None}, self._known
            while waiting:
                name = waiting.pop()
                for each in (known.get(name) or self._source(name)).imports:
                    if each not in seen:
                        seen[each] = None
                        waiting.append(each)
            self._stamps[start] = digest("\n".join([known[name].content for name in seen]))
            if self._has_news:
                self._keep()
        return self._stamps[start]

    def _source(self, name: str) -> Source:
        status = _status(name)
        known = self._indexed.get(name)
        if known is None or known.state != _state(status):
            known = self._installed.get(name)
            if known is None or not self._is_as_installed(known, status):
                known = _look_at(name, _state(status), known)
                self._has_news = True
        self._known[name] = known
        return known

    def _is_as_installed(self, known: Source, status: os.stat_result) -> bool:
        """Say so of a file as Python does of one whose bytecode it has: by its size and time."""
        before = self._listed - status.st_mtime_ns
        return 0 <= before < INSTALLING and known.state == str(status.st_size)

    def refuse_changed(self) -> None:
        """Make sure that the imported files are those that stamps describe.

        Raises:
            Changed: They may differ.
        """
        for name in tuple(self._known):
            _status(name)

    def _keep(self) -> None:
        """Write the index if it lacks a quarter of what is known, and less than that once."""
        self._has_news = False
        indexed, installed = self._indexed, self._installed
        known = {n: e for n, e in self._known.copy().items() if e is not installed.get(n)}
        new = sum(indexed.get(name) != source for name, source in known.items())
        if not new or (4 * new < len(known) and self._wrote_little):
            return
        self._wrote_little |= 4 * new < len(known)
        self._indexed = indexed | known
        with contextlib.suppress(OSError):
            write_trusted(self._index, _packed(self._indexed))

    def keep_for_installing(self) -> None:
        """Write the index as it is to be installed: of files whose times are unknown.

        Raises:
            OSError: It cannot be written.
        """
        known = {
            name: source._replace(state=source.state.partition(".")[0])
            for name, source in self._known.items()
        }
        write_trusted(self._index, _packed(known))


def write_index(folder: str) -> None:
    """Write what the kernels of this package are compiled from, to be installed beside them."""
    from pathlib import Path  # few processes look for all of them

    sources, root = Sources(os.path.join(folder, INDEX)), Path(ROOT)
    for path in sorted((*root.glob("jit/**/*.py"), *root.glob("*/kernels/*.py"))):
        sources.stamp(str(path))
    sources.keep_for_installing()


def _packed(known: Mapping[str, Source]) -> bytes:
    """Return an index as it lies in a file."""
    rows = [
        " ".join((name, source.content, source.state, *source.imports))
        for name, source in sorted(known.items())
    ]
    text = "\n".join(rows).encode()
    return b"%d\n%b" % (zlib.crc32(text), text)


def _read(index: str, like: os.stat_result | None = None) -> dict[str, Source]:
    """Return what an index knows; nothing if it is not whole, or not trusted."""
    found = {}
    try:
        checksum, _, text = read_trusted(index, like).partition(b"\n")
        if checksum == b"%d" % zlib.crc32(text):
            for row in text.decode().splitlines():
                name, content, state, *imports = row.split(" ")
                found[name] = Source(state, content, tuple(imports))
    except (OSError, ValueError):
        return {}
    return found


def _state(status: os.stat_result) -> str:
    return f"{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}.{status.st_ino}"


def _status(name: str) -> os.stat_result:
    """Return the status of a file that has not changed."""
    path = os.path.join(ROOT, name)
    status = os.stat(path)
    if status.st_ctime_ns > BEGAN:
        raise Changed(f"{name} has changed since this process began: restart the process")
    return status


def _look_at(name: str, state: str, installed: Source | None) -> Source:
    """Read a file; what it imports is looked for unless its content is what was installed."""
    with open(os.path.join(ROOT, name), "rb", buffering=0) as file:
        text = file.read()
    _status(name)
    content = digest(text)
    if installed is not None and installed.content == content:
        return installed._replace(state=state)
    source = text.decode()
    modules = _modules()
    names = dict.fromkeys(
        name
        for module, things in re.findall(IMPORT, source)
        for name in (module, *(f"{module}.{thing}" for thing in re.findall(WORD, things)))
    )
    return Source(state, content, tuple(modules[name] for name in names if name in modules))


@functools.cache
def _modules() -> dict[str, str]:
    """Return the files of this package's modules by name."""
    found = {}
    for folder, _, files in os.walk(ROOT):
        inside = os.path.relpath(folder, ROOT)
        parts = [] if inside == os.curdir else inside.split(os.sep)
        package = ".".join((os.path.basename(ROOT), *parts))
        for file in files:
            if file == "__init__.py" and parts:
                found[package] = os.path.join(*parts, file)
            elif file.endswith(".py"):
                found[f"{package}.{file.removesuffix('.py')}"] = os.path.join(*parts, file)
    return found
