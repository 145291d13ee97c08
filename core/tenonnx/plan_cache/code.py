"""The code that a plan was made by: its state on this machine, and its digest for others."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from importlib.util import find_spec

from tenonnx.plan_cache import NotCacheable, admitted
from tenonnx.process import distributions
from tenonnx.weights.digest import digest
from tenonnx.weights.mapping import State, state_from

# The time of this process's first import of code; clocks of file systems are a little behind.
PROCESS_START_NS = time.time_ns() - 10_000_000

# Nanoseconds in which several writes to a file may have one time.
FILE_TIME_TICK_NS = 10_000_000


def packages() -> dict[str, str]:
    """Return the packages of code that plans name, and the distributions that they are of."""
    found = {"tenonnx": "tenonnx", "tenonnx_array": "tenonnx"}
    return found | {each.package: each.distribution for each in admitted.plugins()}


def states() -> list[tuple[str, str, str]]:
    """Return the state of the code of each package that a plan may name.

    Of what they import of others, such as onnx, it is the versions: ``key.installations``.

    Raises:
        NotCacheable: It has changed since this process began, which may have imported either.
    """
    return [(*each, state_of_code(*each)) for each in sorted(packages().items())]


@functools.cache
def state_of_code(package: str, distribution: str) -> str:
    """Return a digest of the state of a package's files, as it was when the process looked first.

    It has imported most of them by then. A later state would be that of other processes' plans.

    Raises:
        NotCacheable: One has changed since this process began.
    """
    record = _listed(package, distribution)
    files = _modules(_folder_of(package)) if record is None else [record]
    found = [(each, state_of(each)) for each in files]
    if max((state[-1] for _, state in found), default=0) > PROCESS_START_NS:
        raise NotCacheable(f"{package} has changed since this process began")
    return digest(repr(found))


def state_of(path: str) -> State:
    """Return what tells a file's state from every other.

    Raises:
        NotCacheable: It cannot be looked at.
    """
    try:
        status = os.stat(path)
        young = status.st_ctime_ns + FILE_TIME_TICK_NS - time.time_ns()
        if 0 < young <= FILE_TIME_TICK_NS:
            time.sleep(young / 1e9)  # whatever is written from now on has another time
            status = os.stat(path)
    except (OSError, ValueError) as error:
        raise NotCacheable(f"{path} cannot be looked at: {error}") from error
    return state_from(status)


def digest_of_code(package: str, distribution: str) -> str:
    """Return a digest of a package's modules, the same whether it is installed or a checkout."""
    return digest("\n".join(sorted(_lines(package, distribution))))[:16]


def _lines(package: str, distribution: str) -> Iterator[str]:
    """Yield a line for every module of a package, as a list of installed files has it."""
    if (record := _listed(package, distribution)) is not None:
        tops = f"{package}/", f"{package}.py,"
        yield from (x for x in _lines_of(record) if x.startswith(tops) and ".py," in x)
        return
    import base64  # for checkouts alone
    from hashlib import sha256

    place = _folder_of(package)
    for path in _modules(place):
        with open(path, "rb") as file:
            content = file.read()
        stamp = base64.urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
        relative = os.path.relpath(path, os.path.dirname(place)).replace(os.sep, "/")
        yield f"{relative},sha256={stamp},{len(content)}"


@functools.cache
def _lines_of(record: str) -> list[str]:
    with open(record, encoding="utf-8") as file:
        return file.read().splitlines()


def _listed(package: str, distribution: str) -> str | None:
    """Return the list of a distribution's installed files, if it is that of a package's."""
    record = distributions.record(distribution)
    above = None if record is None else os.path.dirname(os.path.dirname(record))
    return record if above == os.path.dirname(_folder_of(package)) else None


@functools.cache
def _folder_of(package: str) -> str:
    """Return the folder of a package, or the file of a module; empty if there is none."""
    found = find_spec(package)  # which imports nothing
    if found is None:
        return ""
    return next(iter(found.submodule_search_locations or ()), found.origin) or ""


def _modules(place: str) -> Iterator[str]:
    """Yield the modules below a folder; a file by itself."""
    if not os.path.isdir(place):
        yield from [place] if place else []
        return
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from _modules(entry.path)
