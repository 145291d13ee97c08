"""Writing the file of ``kept_modules`` when a process ends, as reading all modules takes long."""

from __future__ import annotations

import atexit
import marshal
import os
import sys
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from typing import Any

from tenonnx import kept_modules
from tenonnx.digest import digest
from tenonnx.kept_modules import FRONT, MARK, PACKAGE, Direct, Loader, log, state_of
from tenonnx.weights.folder import cache_room
from tenonnx.weights.trusted import write_trusted

_keeps = False


def keep_at_exit() -> None:
    """Has the modules kept that this process has when it ends, as reading them all takes long."""
    global _keeps
    if not _keeps:
        _keeps = True
        if (path := kept_modules.path_of()) is not None:
            atexit.register(keep, path)


def keep(path: str) -> None:
    """Keeps the modules that this process has imported, beside those that others kept."""
    finder = kept_modules._finder
    known = {} if finder is None else finder.entries
    new = [name for name in _imported() if name not in known or not _is_ours(name)]
    if not new or not os.path.isdir(os.path.dirname(path)):  # it may have been a test's
        return
    codes: dict[str, tuple[Any, bytes | memoryview]] = {}
    for name, entry in known.items():
        if state_of(entry[0]) == entry[3]:
            codes[name] = entry[:4], finder.code(entry)  # type: ignore[union-attr]
    for name in new:
        if (found := _compiled(name)) is not None:
            codes[name] = found
    try:
        _write(path, codes)
    except (OSError, ValueError) as why:  # nothing depends on it
        log.info("modules are not kept: %s", why)


def _imported() -> Iterable[str]:
    return [n for n in list(sys.modules) if n.startswith(PACKAGE) and "." in n]


def _is_ours(name: str) -> bool:
    return isinstance(getattr(sys.modules.get(name), "__loader__", None), Loader)


def _compiled(name: str) -> tuple[Any, bytes] | None:
    """Returns an entry's beginning and a module's code, if it is of a file that has not changed."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if (
        spec is None
        or type(spec.loader) not in (SourceFileLoader, Direct, Loader)
        or not spec.origin
    ):
        return None
    before = state_of(spec.origin)
    try:
        code = SourceFileLoader.get_code(spec.loader, name)
    except (OSError, SyntaxError, ImportError):
        return None
    if code is None or before is None or state_of(spec.origin) != before:
        return None
    is_package = spec.submodule_search_locations is not None
    return (spec.origin, spec.cached, is_package, before), marshal.dumps(code)


def _write(path: str, codes: dict[str, tuple[Any, bytes | memoryview]]) -> None:
    entries, place = {}, 0
    for name, (begin, code) in codes.items():
        entries[name] = (*begin, place, len(code))
        place += len(code)
    listed = marshal.dumps(entries)
    size = FRONT.size + len(listed) + place
    front = FRONT.pack(MARK, digest(listed).encode(), len(listed), size)
    content = [front, listed, *(code for _, code in codes.values())]
    room = cache_room()
    if room is not None and room.take(size):
        write_trusted(path, *content)
