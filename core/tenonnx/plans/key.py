"""The key of a compiled plan: two processes of one key compile the same plan."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx import installed
from tenonnx.interface import config
from tenonnx.plans import Unkept, admitted

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions

VERSION = "plan 7"

PATH, STATE = 5, 6
"""The indices of the facts that are the model's path, and its file's state."""

BEGAN = time.time_ns() - 10_000_000
"""The time of this process's first import of code; clocks of file systems are a little behind."""

TICK = 10_000_000
"""Nanoseconds in which several writes to a file may have one time."""

OPTIMIZED = sys.flags.optimize
"""Python's level of optimization. Some levels drop constants by which functions are found."""

PREFIXES = ("TENONNX_", "NUMBA_", "ORT_LOAD_")
PLACES = frozenset({"TENONNX_CACHE_DIR", "TENONNX_CACHE_SIZE"})
"""Variables that say where and how much is kept, not what."""

TRUST_VARIABLE = "TENONNX_TRUST_COMPILED"
"""The folders whose compiled files are the caller's own."""

WITHOUT_EFFECT = frozenset(
    {"logid", "log_severity_level", "log_verbosity_level", "profile_file_prefix"}
    | {"trust_compiled_plan"}
)
"""Options that change nothing of a plan."""

OF_THE_PROCESS = ("weights", "plugins", "operators", "_initializers", "_files")
"""Options that mean nothing to another process."""

AT_ONCE = ("enable_profiling", "optimized_model_filepath", "_cancelled")
"""Options that want more of a session than a plan, and at once."""


def facts(
    path: str,
    options: SessionOptions,
    requests: Sequence[Any] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
    disabled: Sequence[str],
) -> tuple[Any, ...]:
    """Returns what a plan depends on that is known before anything is read.

    Args:
        path: The model's.
        options: The session's, with the process's defaults.
        requests: The providers that were asked for.
        provider_options: Their options.
        disabled: Transforms not to run.

    Raises:
        Unkept: It depends on something that other processes do not have.
    """
    refuse(options)
    entries = admitted.plugins()
    refuse_registered(entries)
    return (
        VERSION, installed.release(), sys.version, OPTIMIZED, np.__version__,
        os.path.abspath(path), state_of(path),
        tuple(options_of(options)), plain(requests), plain(provider_options), tuple(disabled),
        tuple(variables()), sources(entries),
    )  # fmt: skip


def refuse(options: SessionOptions) -> None:
    """Raises Unkept if options name what is the process's, or want more than a plan."""
    for name in OF_THE_PROCESS:
        given = getattr(options, name)
        if given is not None and (not hasattr(given, "__len__") or len(given)):
            raise Unkept(f"the options have {name.strip('_')} of this process")
    for name in AT_ONCE:
        if getattr(options, name):
            raise Unkept(f"the options have {name.strip('_')}")
    if options.time_limit is not None:
        raise Unkept("the options have a time_limit")
    if options.allowed_roots or options.entry(config.DATA_FOLDER):
        raise Unkept("external data may lie in one of several folders")


def refuse_registered(entries: Sequence[installed.EntryPoint]) -> None:
    """Raises Unkept if this process has plug-ins or operators that others do not have."""
    manager = sys.modules.get("tenonnx.plugins.manager")
    plugins = getattr(manager, "_default", None)
    known = {f"{e.distribution} {e.version}" for e in entries}
    if plugins is not None:
        for record in plugins.records:
            if record.distribution not in known and record.error is None:
                raise Unkept(f"the plug-in {record.name} was registered by the program")
        if {e.name for e in entries}.difference(record.name for record in plugins.records):
            raise Unkept("plug-ins were installed since this process began")
    custom = sys.modules.get("tenonnx.custom_ops")
    if custom is not None and len(custom.GLOBAL):
        raise Unkept("operators were registered by the program")


def state_of(path: str) -> tuple[int, ...]:
    """Returns what tells a file's state from every other.

    Raises:
        Unkept: It cannot be looked at.
    """
    try:
        status = os.stat(path)
        if 0 < (young := status.st_ctime_ns + TICK - time.time_ns()) <= TICK:
            time.sleep(young / 1e9)  # whatever is written from now on has another time
            status = os.stat(path)
    except (OSError, ValueError) as error:
        raise Unkept(f"{path} cannot be looked at: {error}") from error
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, *times


def options_of(options: SessionOptions) -> Iterator[tuple[str, Any]]:
    """Yields the options that change a plan, by name, as what says all of them."""
    for name, value in sorted(vars(options).items()):
        if name not in WITHOUT_EFFECT and name not in OF_THE_PROCESS:
            yield name, plain(value)


def plain(value: Any) -> Any:
    """Returns a value whose representation says all of it.

    Raises:
        Unkept: There is none.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value.__class__.__name__, repr(value)
    if isinstance(value, Mapping):
        return tuple(sorted((plain(k), plain(v)) for k, v in value.items()))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    raise Unkept(f"{type(value).__name__} in the options or providers belongs to this process")


def variables() -> Iterator[tuple[str, str]]:
    """Yields the environment's variables that change a plan."""
    for name, value in sorted(os.environ.items()):
        if name.startswith(PREFIXES) and name not in PLACES:
            yield name, value


def sources(entries: Sequence[installed.EntryPoint]) -> tuple[Any, ...]:
    """Returns plug-ins that are installed, and what tells their code's state from others.

    Of what they import of others, such as onnx, it is the versions.

    Raises:
        Unkept: It has changed since this process began, which may have imported either.
    """
    lists: dict[str, tuple[int, ...]] = {}
    states = tuple((root, _state_of_code(root, whose, lists)) for root, whose in packages(entries))
    return tuple(map(tuple, entries)), states, installed.installations()


def packages(entries: Sequence[installed.EntryPoint]) -> list[tuple[str, str]]:
    """Returns the packages of code that plans name, and the distributions that they are of."""
    roots = {"tenonnx": "tenonnx", "tenonnx_array": "tenonnx"}
    roots.update((e.value.partition(":")[0].partition(".")[0], e.distribution) for e in entries)
    return sorted(roots.items())


def _state_of_code(
    package: str, distribution: str, lists: dict[str, tuple[int, ...]]
) -> tuple[Any, ...] | None:
    """Returns the state of a package's files: of the list of them, if they are installed.

    Args:
        package: Its name.
        distribution: Its distribution.
        lists: The states of the lists that were looked at, by their folders.
    """
    folder = folder_of(package)
    if folder is None:
        return None
    info = installed.folder(distribution)
    found: dict[str, tuple[int, ...]] = {}
    if info is not None and os.path.dirname(info) == os.path.dirname(folder):
        if info not in lists:
            lists[info] = state_of(f"{info}/RECORD")
        found["RECORD"] = lists[info]
    elif os.path.isdir(folder):
        found.update(_first_seen(folder))
    else:
        found[folder] = state_of(folder)
    if max((state[-1] for state in found.values()), default=0) > BEGAN:
        raise Unkept(f"{package} has changed since this process began")
    return tuple(sorted(found.items()))


@functools.cache
def folder_of(package: str) -> str | None:
    """Returns the folder of a package, or the file of a module, without importing it."""
    return installed.place(package)


@functools.cache
def _first_seen(folder: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Returns ``modules``, as they were when the process looked first.

    It has imported most of them by then. Later states would be those of other processes' plans.
    """
    return tuple(modules(folder))


def modules(folder: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the modules below a folder, and the state of each one's file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                times = status.st_mtime_ns, status.st_ctime_ns
                yield entry.path, (status.st_size, status.st_ino, *times)
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from modules(entry.path)
