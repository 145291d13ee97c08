"""The key of a compiled plan: two processes of one key compile the same plan."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.interface import config
from tenonnx.plan_cache import NotCacheable, admitted
from tenonnx.process import distributions
from tenonnx.weights.digest import digest
from tenonnx.weights.mapping import State, state_from

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions

PLAN_VERSION = "plan 11"

# The time of this process's first import of code; clocks of file systems are a little behind.
PROCESS_START_NS = time.time_ns() - 10_000_000

# Nanoseconds in which several writes to a file may have one time.
FILE_TIME_TICK_NS = 10_000_000

# Python's level of optimization. Some levels drop constants by which functions are found.
OPTIMIZED = sys.flags.optimize

# The folders whose compiled files are the caller's own.
TRUST_VARIABLE = "TENONNX_TRUST_COMPILED"

PREFIXES = ("TENONNX_", "NUMBA_", "ORT_LOAD_")
# Variables that say where and how much is kept, not what; providers depend on what is found there.
IGNORED_VARIABLES = frozenset(
    {"TENONNX_CACHE", "TENONNX_CACHE_DIR", "TENONNX_CACHE_SIZE", "TENONNX_PLANS", TRUST_VARIABLE}
    | {"TENONNX_BUILD_KERNELS", "TENONNX_KERNELS_DIR"}
)

# Options that change nothing of a plan, or that `refuse` has looked at; providers are known apart.
WITHOUT_EFFECT = frozenset(
    {"logid", "log_severity_level", "log_verbosity_level", "profile_file_prefix"}
    | {"trust_compiled_plan", "_providers"}
)

# Hooks of a plug-in that changes no plan.
ONLY_COMMANDS = ("register_commands",)

# Options that mean nothing to another process.
OF_THE_PROCESS = ("weights", "plugins", "operators", "_initializers", "_files")

# Options that want more of a session than a plan, and at once.
UNCACHED_OPTIONS = ("check", "enable_profiling", "optimized_model_filepath", "_cancelled")


def facts(
    path: str,
    state: State,
    options: SessionOptions,
    requests: Sequence[Any] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
    disabled: Sequence[str],
) -> tuple[Any, ...]:
    """Return what a plan depends on that is known before anything is read.

    Args:
        path: The model's.
        state: The state of its file.
        options: The session's, with the process's defaults.
        requests: The providers that were asked for.
        provider_options: Their options.
        disabled: Transforms not to run.

    Raises:
        NotCacheable: It depends on something that other processes do not have.
    """
    asked = plain(requests or options._providers), plain(provider_options)
    common, installed = conditions(options, disabled), installations(tuple(sys.path))
    return PLAN_VERSION, sys.version, path, state, asked, common, installed


def conditions(options: SessionOptions, disabled: Iterable[str]) -> dict[str, str]:
    """Return what a plan depends on, on this machine and on others: what, and how it is here.

    Args:
        options: The session's, with the process's defaults.
        disabled: Transforms not to run.

    Raises:
        NotCacheable: It depends on something that other processes do not have.
    """
    refuse(options)
    refuse_registered()
    return {
        "Python's -O": str(OPTIMIZED),
        "numpy": np.__version__,
        "disabled_optimizers": ", ".join(disabled) or "none",
        **dict(_options(options)),
        **{
            f"the variable {name}": value
            for name, value in sorted(os.environ.items())
            if name.startswith(PREFIXES) and name not in IGNORED_VARIABLES
        },
    }


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


def _options(options: SessionOptions) -> Iterator[tuple[str, str]]:
    """Yield what options say that differs from what they say at first."""
    yield from ((f"the entry {name}", text) for name, text in sorted(options._config.items()))
    usual = vars(type(options)())
    for name, value in sorted(vars(options).items()):
        known = name in WITHOUT_EFFECT or name in OF_THE_PROCESS or name == "_config"
        if not known and plain(value) != plain(usual[name]):
            yield f"the option {name.strip('_')}", str(value)


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


@functools.cache
def installations(path: tuple[str, ...]) -> tuple[tuple[str, State], ...]:
    """Return the folders of distributions' metadata, which name versions, and their states.

    They are made anew with each installation, which alone changes what they announce.
    """
    return tuple((each, state_of(each)) for each in distributions.places(path))


def packages() -> dict[str, str]:
    """Return the packages of code that plans name, and the distributions that they are of."""
    found = {"tenonnx": "tenonnx", "tenonnx_array": "tenonnx"}
    return found | {each.package: each.distribution for each in admitted.plugins()}


def states() -> list[tuple[str, str, str]]:
    """Return the state of the code of each package that a plan may name.

    Of what they import of others, such as onnx, it is the versions: ``installations``.

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
    import base64
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
