"""The key of a compiled plan: two processes of one key compile the same plan."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenonnx.interface import config
from tenonnx.plan_cache import NotCacheable, admitted
from tenonnx.process import distributions
from tenonnx.process.distributions import EntryPoint
from tenonnx.weights.mapping import State, state_from

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions

PLAN_VERSION = "plan 11"

INFO = (".dist-info", ".egg-info")

# The indices of the facts that are the model's path, and its file's state.
PATH, STATE = 4, 5

# The time of this process's first import of code; clocks of file systems are a little behind.
PROCESS_START_NS = time.time_ns() - 10_000_000

# Nanoseconds in which several writes to a file may have one time.
FILE_TIME_TICK_NS = 10_000_000

# Python's level of optimization. Some levels drop constants by which functions are found.
OPTIMIZED = sys.flags.optimize

PREFIXES = ("TENONNX_", "NUMBA_", "ORT_LOAD_")
# Variables that say where and how much is kept, not what.
IGNORED_VARIABLES = frozenset({"TENONNX_CACHE_DIR", "TENONNX_CACHE_SIZE"})

# The folders whose compiled files are the caller's own.
TRUST_VARIABLE = "TENONNX_TRUST_COMPILED"

# Options that change nothing of a plan.
WITHOUT_EFFECT = frozenset(
    {"logid", "log_severity_level", "log_verbosity_level", "profile_file_prefix"}
    | {"trust_compiled_plan"}
)

# Hooks of a plug-in that changes no plan.
ONLY_COMMANDS = ("register_commands",)

# Options that mean nothing to another process.
OF_THE_PROCESS = ("weights", "plugins", "operators", "_initializers", "_files")

# Options that want more of a session than a plan, and at once.
UNCACHED_OPTIONS = ("check", "enable_profiling", "optimized_model_filepath", "_cancelled")


def facts(
    path: str,
    options: SessionOptions,
    requests: Sequence[Any] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
    disabled: Sequence[str],
) -> tuple[Any, ...]:
    """Return what a plan depends on that is known before anything is read.

    Args:
        path: The model's.
        options: The session's, with the process's defaults.
        requests: The providers that were asked for.
        provider_options: Their options.
        disabled: Transforms not to run.

    Raises:
        NotCacheable: It depends on something that other processes do not have.
    """
    refuse(options)
    refuse_registered()
    return (
        PLAN_VERSION, sys.version, OPTIMIZED, np.__version__, os.path.abspath(path), state_of(path),
        tuple(options_of(options)), plain(requests), plain(provider_options), tuple(disabled),
        tuple(variables()), installations(tuple(sys.path)),
    )  # fmt: skip


def refuse(options: SessionOptions) -> None:
    """Raise NotCacheable if options name what is the process's, or want more than a plan."""
    for name in OF_THE_PROCESS:
        given = getattr(options, name)
        if given is not None and (not hasattr(given, "__len__") or len(given)):
            raise NotCacheable(f"the options have {name.strip('_')} of this process")
    for name in UNCACHED_OPTIONS:
        if getattr(options, name):
            raise NotCacheable(f"the options have {name.strip('_')}")
    if options.time_limit is not None:
        raise NotCacheable("the options have a time_limit")
    if options.entry(config.CONTEXT) == "1":
        raise NotCacheable("compiled segments are to be written")
    if options.allowed_roots or options.entry(config.DATA_FOLDER):
        raise NotCacheable("external data may lie in one of several folders")


def refuse_registered() -> None:
    """Raise NotCacheable if this process has plug-ins or operators that others do not have."""
    manager = sys.modules.get("tenonnx.plugins.manager")
    plugins = getattr(manager, "_default", None)
    if plugins is not None:
        entries = admitted.plugins()
        known = {f"{e.distribution} {e.version}" for e in entries}
        for record in plugins.records:
            harmless = record.error is not None or record.hooks == ONLY_COMMANDS
            if not harmless and record.distribution not in known:
                raise NotCacheable(f"the plug-in {record.name} was registered by the program")
        if {e.name for e in entries}.difference(record.name for record in plugins.records):
            raise NotCacheable("plug-ins were installed since this process began")
    custom = sys.modules.get("tenonnx.custom_ops")
    if custom is not None and len(custom.GLOBAL):
        raise NotCacheable("operators were registered by the program")


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


def options_of(options: SessionOptions) -> Iterator[tuple[str, Any]]:
    """Yield the options that change a plan, by name, as what says all of them."""
    for name, value in sorted(vars(options).items()):
        if name not in WITHOUT_EFFECT and name not in OF_THE_PROCESS:
            yield name, plain(value)


def plain(value: Any) -> Any:
    """Return a value whose representation says all of it.

    Raises:
        NotCacheable: There is none.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value.__class__.__name__, repr(value)
    if isinstance(value, Mapping):
        return tuple(sorted((plain(k), plain(v)) for k, v in value.items()))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    raise NotCacheable(
        f"{type(value).__name__} in the options or providers belongs to this process"
    )


def variables() -> Iterator[tuple[str, str]]:
    """Yield the environment's variables that change a plan."""
    for name, value in sorted(os.environ.items()):
        if name.startswith(PREFIXES) and name not in IGNORED_VARIABLES:
            yield name, value


# The state of a package's code: the list of a distribution's files that it is in, if it is in one,
# and the states of that, or of its modules.
Code: TypeAlias = "tuple[str | None, tuple[tuple[str, tuple[int, ...]], ...]]"


def sources() -> dict[str, Code]:
    """Return the state of the code of each package that a plan may name.

    Of what they import of others, such as onnx, it is the versions: ``installations``.

    Raises:
        NotCacheable: It has changed since this process began, which may have imported either.
    """
    named = packages(admitted.plugins())
    return {root: code_of(root, distributions.record(whose)) for root, whose in named}


def packages(entries: Sequence[EntryPoint]) -> list[tuple[str, str]]:
    """Return the packages of code that plans name, and the distributions that they are of."""
    roots = {"tenonnx": "tenonnx", "tenonnx_array": "tenonnx"}
    roots.update((each.package, each.distribution) for each in entries)
    return sorted(roots.items())


def state_of_code(package: str) -> tuple[Any, ...]:
    """Return what tells the code of a plug-in's package, and its version, from others.

    Raises:
        NotCacheable: It is of no plug-in that is installed, or has changed since this process
            began.
    """
    whose = dict(packages(admitted.plugins())).get(package)
    if whose is None:
        raise NotCacheable(f"{package} is of no plug-in that is installed")
    return whose, distributions.version(whose), code_of(package, distributions.record(whose))


def code_of(package: str, record: str | None) -> Code:
    """Return the state of a package's code.

    Args:
        package: Its name.
        record: The list of its distribution's files.

    Raises:
        NotCacheable: It has changed since this process began.
    """
    folder, found = folder_of(package), tuple[tuple[str, tuple[int, ...]], ...]()
    record = record if record is not None and folder and is_beside(record, folder) else None
    if record is not None:
        found = ((record, state_of(record)),)
    elif folder is not None:
        is_package = os.path.isdir(folder)
        found = _first_seen(folder) if is_package else ((folder, state_of(folder)),)
    if max((state[-1] for _, state in found), default=0) > PROCESS_START_NS:
        raise NotCacheable(f"{package} has changed since this process began")
    return record, found


@functools.cache
def folder_of(package: str) -> str | None:
    """Return the folder of a package, or the file of a module, without importing it."""
    found = find_spec(package)
    if found is None:
        return None
    return next(iter(found.submodule_search_locations or ()), found.origin)


def is_beside(record: str, folder: str) -> bool:
    """Return whether the list of a distribution's files is that of the package in a folder."""
    return os.path.dirname(os.path.dirname(record)) == os.path.dirname(folder)


@functools.cache
def installations(path: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return the names of metadata's folders, which have versions, and when they were made.

    They are made anew with each installation, which alone changes what they announce.
    """
    found: set[tuple[str, int]] = set()
    for folder in path:
        with contextlib.suppress(OSError):
            try:
                with os.scandir(folder or ".") as entries:
                    infos = [each for each in entries if each.name.endswith(INFO)]
                found.update((each.name, each.stat().st_mtime_ns) for each in infos)
            except NotADirectoryError:  # an archive
                found.add((folder, os.stat(folder).st_mtime_ns))
    return tuple(sorted(found))


@functools.cache
def _first_seen(folder: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return ``modules``, as they were when the process looked first.

    It has imported most of them by then. Later states would be those of other processes' plans.
    """
    return tuple(modules(folder))


def modules(folder: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the modules below a folder, and the state of each one's file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                times = status.st_mtime_ns, status.st_ctime_ns
                yield entry.path, (status.st_size, status.st_ino, *times)
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from modules(entry.path)
