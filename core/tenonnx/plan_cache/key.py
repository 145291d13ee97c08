"""The key of a compiled plan: two processes of one key compile the same plan."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.interface import config
from tenonnx.plan_cache import NotCacheable, admitted
from tenonnx.plan_cache.code import state_of
from tenonnx.process import distributions

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions
    from tenonnx.weights.mapping import State

PLAN_VERSION = "plan 11"

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
