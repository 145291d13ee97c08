"""The conditions of a plan for other machines, in words that messages can say."""

from __future__ import annotations

import base64
import functools
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.plan_cache import NotCacheable, admitted, key
from tenonnx.plan_cache.admitted import global_of
from tenonnx.process import distributions
from tenonnx.process.distributions import EntryPoint
from tenonnx.weights.digest import digest

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions

NOT_HERE = "nothing"

# Variables that change nothing of a plan.
OF_ONE_MACHINE = frozenset(
    {*key.IGNORED_VARIABLES, key.TRUST_VARIABLE}
    | {"TENONNX_CACHE", "TENONNX_PLANS", "TENONNX_BUILD_KERNELS", "TENONNX_KERNELS_DIR"}
)


def facts(options: SessionOptions, disabled: Sequence[str]) -> dict[str, str]:
    """Return what a plan depends on besides providers: what, and how it is here.

    Raises:
        NotCacheable: It depends on something that other processes do not have.
    """
    key.refuse(options)
    entries = admitted.plugins()
    key.refuse_registered()
    key.sources()  # refuses code that changed since it was imported
    plugs = {f"the plug-in {e.name}": f"{e.distribution} {e.version}" for e in entries}
    return {
        "tenonnx": distributions.release(),
        "Python": f"{sys.implementation.cache_tag} {importlib.util.MAGIC_NUMBER.hex()}",
        "Python's -O": str(key.OPTIMIZED),
        "numpy": np.__version__,
        "ml_dtypes": distributions.version("ml_dtypes") or NOT_HERE,
        **plugs,
        **{f"the code of {root}": stamp for root, stamp in _code(entries)},
        **dict(_options(options)),
        **({"disabled_optimizers": ", ".join(disabled)} if disabled else {}),
        **{
            f"the variable {name}": value
            for name, value in key.variables()
            if name not in OF_ONE_MACHINE
        },
    }


def provider_facts(module: str, name: str) -> dict[str, str]:
    """Return what the steps of a provider depend on.

    Raises:
        NotCacheable: There is no such provider, or its steps mean nothing to another process.
    """
    found = global_of(module, name)
    told = found.depends_on()
    if told is None:
        raise NotCacheable(f"steps of {found.name} cannot be kept")
    pairs = all(isinstance(each, tuple) and len(each) == 2 for each in told)
    named = told if pairs else enumerate(told)
    return {f"{found.name}: {what}": repr(value) for what, value in named}


def differences(told: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Return in what a machine differs from the one that compiled, a line for each."""
    return [
        f"{name}: {told.get(name, NOT_HERE)} when it was compiled, {here.get(name, NOT_HERE)} here"
        for name in dict.fromkeys((*told, *here))
        if told.get(name) != here.get(name)
    ]


def _options(options: SessionOptions) -> Iterator[tuple[str, str]]:
    """Yield what options say that differs from what they say at first."""
    plain = dict(key.options_of(type(options)()))
    for name, value in key.options_of(options):
        if name == "_config":
            yield from ((f"the entry {each}", text) for each, text in options._config.items())
        elif name != "_providers" and value != plain[name]:
            yield f"the option {name.strip('_')}", str(getattr(options, name))


def _code(entries: Sequence[EntryPoint]) -> Iterator[tuple[str, str]]:
    """Yield the packages of code that plans may name, and a digest of each one's sources."""
    for root, distribution in key.packages(entries):
        lines = sorted(_sources(root, distribution))
        yield root, digest("\n".join(lines))[:16]


def _sources(root: str, distribution: str) -> Iterator[str]:
    """Yield a line for every module of a package, as a list of installed files has it."""
    place = key.folder_of(root)
    if place is None:
        return
    above = os.path.dirname(place)
    record = distributions.record(distribution)
    if record is not None and key.is_beside(record, place):
        tops = f"{root}/", f"{root}.py,"
        yield from (line for line in _lines(record) if line.startswith(tops) and ".py," in line)
        return
    from hashlib import sha256

    files = [path for path, _ in key.modules(place)] if os.path.isdir(place) else [place]
    for path in files:
        with open(path, "rb") as file:
            content = file.read()
        stamp = base64.urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
        relative = os.path.relpath(path, above).replace(os.sep, "/")
        yield f"{relative},sha256={stamp},{len(content)}"


@functools.cache
def _lines(record: str) -> list[str]:
    """Return the lines of a list of installed files."""
    with open(record, encoding="utf-8") as file:
        return file.read().splitlines()
