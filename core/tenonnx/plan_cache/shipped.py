"""Opening a session from the plan in a compiled file, for those who say that the file is theirs.

Parts of a plan are objects of marked classes, and none of these opens files or runs text as code.
But whoever writes them decides what kernels read and write: no check makes a stranger's harmless.
Without a word of the caller's a compiled file is a model, read and compiled as any other.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.errors import Fail
from tenonnx.formats.compiled_file import header_of, is_compiled
from tenonnx.plan_cache import NotCacheable, admitted, files, key
from tenonnx.plan_cache.admitted import global_of
from tenonnx.plan_cache.unpickling import plain, session_parts
from tenonnx.process import distributions
from tenonnx.provider import resolve_provider_name
from tenonnx.weights.mapping import Identity
from tenonnx.weights.trusted import Untrusted, open_trusted

if TYPE_CHECKING:
    from tenonnx.interface.session_info import SessionParts
    from tenonnx.options import SessionOptions
    from tenonnx.weights.mapping import Mapping as File
    from tenonnx.weights.registry import WeightRegistry

NOT_HERE = "nothing"

AGAIN = (
    "Compile it again for this machine: `tenonnx compile MODEL -o FILE`. Without "
    f"trust_compiled_plan and {key.TRUST_VARIABLE} it is opened as a model."
)


def is_claimed(source: Any, options: SessionOptions) -> bool:
    """Return whether a file is a compiled one that the caller says is theirs."""
    if not isinstance(source, str | os.PathLike):
        return False
    path = os.path.realpath(source)
    if not (options.trust_compiled_plan or _is_below(path)):
        return False
    try:
        with open(path, "rb") as file:
            return is_compiled(file.read(64))
    except OSError:
        return False


def _is_below(path: str) -> bool:
    folders = os.environ.get(key.TRUST_VARIABLE, "").split(os.pathsep)
    tops = [os.path.join(os.path.realpath(each), "") for each in folders if each]
    return any(path.startswith(top) for top in tops)


def loaded(
    path: str,
    options: SessionOptions,
    requests: Sequence[Any] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
    disabled: Sequence[str],
    registry: WeightRegistry,
) -> SessionParts:
    """Return a plan's parts from a compiled file.

    Raises:
        NotCacheable: The options want more of a session than a plan.
        Fail: The file does not fit this machine or these options, or others may have written it.
        InvalidProtobuf: It is damaged.
    """
    here = facts(options, disabled)
    file = _mapped(path, registry)
    header = header_of(file.buffer, path)
    try:
        plan = files.content_of(file, header.plan)
    except ValueError as error:
        raise Fail(f"the plan in {path} is damaged: {error}", hint=AGAIN) from error
    index = plain(plan.checks)
    for module, name in index["providers"]:
        here.update(provider_facts(module, name))
    unlike = differences(index["facts"], here)
    unlike += _other_providers(index, requests or options._providers, provider_options)
    if unlike:
        lines = "".join(f"\n  {line}" for line in unlike)
        raise Fail(f"{path} was compiled for something else:{lines}", hint=AGAIN)
    try:
        return session_parts(plan, {"": file}, options, registry)
    except Exception as error:  # of whatever class a provider's object likes
        raise Fail(
            f"the plan in {path} cannot be used: {type(error).__name__}: {error}", hint=AGAIN
        ) from error


def _mapped(path: str, registry: WeightRegistry) -> File:
    """Map a file that nobody else can have written since it was put there."""
    real = os.path.realpath(path)
    try:
        descriptor = open_trusted(real)
    except Untrusted as error:
        raise Fail(
            f"{path} is said to be trusted, but others may write to it: {error}",
            hint="See to it that the file and the folders above it are yours or root's, and "
            "that nobody else may write there.",
        ) from error
    try:
        seen = Identity.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
    file = registry.map(real)
    if file.identity != seen:
        raise Fail(f"{path} has changed while it was opened")
    return file


def _other_providers(
    index: Any, requests: Sequence[Any], provider_options: Sequence[Mapping[str, Any]] | None
) -> list[str]:
    """Return a line if other providers are asked for than the plan has."""
    if not requests:
        return []
    classes = [global_of(*each) for each in index["providers"]]
    wanted = []
    for name, given in asked(requests, provider_options):
        found = resolve_provider_name(name, classes)
        wanted.append([name if found is None else found.name, given])
    if wanted == index["asked"]:
        return []
    return [f"providers: {index['asked']} when it was compiled, {wanted} here"]


def asked(
    requests: Sequence[Any], provider_options: Sequence[Mapping[str, Any]] | None
) -> list[tuple[str, dict[str, str]]]:
    """Return the names of providers that are asked for, and the options of each.

    Raises:
        NotCacheable: One is an object of this process.
    """
    found = []
    beside = provider_options or [{}] * len(requests)
    for request, more in zip(requests, beside, strict=False):
        if not isinstance(request, str | tuple | list):
            raise NotCacheable("a provider is an object of this process")
        name, given = (request, more) if isinstance(request, str) else request
        found.append((name, {key: str(value) for key, value in sorted(given.items())}))
    return found


def facts(options: SessionOptions, disabled: Sequence[str]) -> dict[str, str]:
    """Return what a plan depends on besides providers: what, and how it is here.

    Raises:
        NotCacheable: It depends on something that other processes do not have.
    """
    common = key.conditions(options, disabled)
    entries, named = admitted.plugins(), sorted(key.packages().items())
    key.states()  # refuses code that changed since it was imported
    return {
        **common,
        "tenonnx": distributions.release(),
        "Python": f"{sys.implementation.cache_tag} {importlib.util.MAGIC_NUMBER.hex()}",
        "ml_dtypes": distributions.version("ml_dtypes") or NOT_HERE,
        **{f"the plug-in {e.name}": f"{e.distribution} {e.version}" for e in entries},
        **{f"the code of {root}": key.digest_of_code(root, d) for root, d in named},
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
