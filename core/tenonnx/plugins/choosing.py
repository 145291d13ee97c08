"""The providers of a session, with their options: those asked for that are usable here."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tenonnx.custom_ops import GLOBAL
from tenonnx.errors import EPFail, InvalidArgument, TenonnxError, did_you_mean
from tenonnx.operators import OperatorTable
from tenonnx.options import SessionOptions
from tenonnx.plugins.manager import PluginSet, default_plugins
from tenonnx.provider import HOST, Provider, why_unusable

log = logging.getLogger("tenonnx")

ProviderRequest: TypeAlias = "str | tuple[str, Mapping[str, Any]] | Provider"

# Providers of onnxruntime that may not be installed here; programs list them by habit.
ORT_PROVIDERS: Final = frozenset(
    f"{name}ExecutionProvider"
    for name in (
        *("ACL", "ArmNN", "Azure", "CANN", "CUDA", "CoreML", "Dml", "Dnnl", "Js", "MIGraphX"),
        *("NV", "Nnapi", "NvTensorRTRTX", "OpenVINO", "QNN", "ROCM", "Rknpu", "SNPE"),
        *("Tensorrt", "Tvm", "VSINPU", "VitisAI", "WebGpu", "WebNN", "Xnnpack"),
    )
)


def choose_providers(
    plugins: PluginSet,
    requests: Sequence[ProviderRequest] | None,
    options: Sequence[Mapping[str, Any]] | None = None,
    session_options: SessionOptions | None = None,
) -> list[Provider]:
    """Instantiate the providers a caller asked for.

    A provider that is not usable here is left out with a warning if one after it is; that is
    the fallback the caller typed.

    Raises:
        InvalidArgument: An unknown provider or option, or a request that is none.
        EPFail: None of the providers asked for is usable; the message says why.
    """
    chosen: list[Provider] = []
    unusable: list[str] = []
    for request, given in _normalize(plugins, requests, options):
        if isinstance(request, Provider):
            chosen.append(request)
            continue
        # Programs for onnxruntime name providers of any of its builds: unusable here, not unknown.
        if request in ORT_PROVIDERS and not plugins.knows(request):
            unusable.append(f"{request}: no plug-in brings it (see `tenonnx plugins`)")
            continue
        provider = plugins.provider(request)
        made = make_options(provider.Options, given, provider.name)
        if any(provider.name == other.name for other in chosen):
            continue
        if (missing := why_unusable(provider)) is None:
            own = session_options.operators if session_options else OperatorTable()
            operators = plugins.operators_for(provider).update(GLOBAL, own)
            chosen.append(_start(provider, made, operators, session_options))
        else:
            unusable.append(f"{provider.name}: {missing}")
    if not chosen:
        raise EPFail(
            "none of the providers asked for can be used here: " + "; ".join(unusable),
            hint="name another after them, for example providers=[..., 'CPUExecutionProvider']",
        )
    if unusable:
        names = ", ".join(provider.name for provider in chosen)
        # The warning shows the caller's line, which makes the session.
        warnings.warn(f"running on {names}; not usable: {'; '.join(unusable)}", stacklevel=5)
    return chosen


def operators_for(provider: type[Provider], options: SessionOptions) -> OperatorTable:
    """Return the kernels that plug-ins and the program added for a provider of a session."""
    return plugins_of(options).operators_for(provider).update(GLOBAL, options.operators)


def make_options(options_class: type | None, given: Any, owner: str) -> Any:
    """Build a provider's options from a mapping or an instance.

    Strings are converted to the field's type, as onnxruntime's string options are.

    Raises:
        InvalidArgument: An unknown option, a value that does not fit, or one that is missing.
    """
    if options_class is not None and isinstance(given, options_class):
        return given
    given = dict(given or {})
    known = {f.name: f for f in dataclasses.fields(options_class)} if options_class else {}
    for name in given:
        if name not in known:
            raise InvalidArgument(f"{owner} has no option {name!r}{did_you_mean(name, known)}")
    if options_class is None:
        return None
    converted = {
        name: _convert(value, known[name].default, f"{owner} option {name!r}")
        for name, value in given.items()
    }
    try:
        return options_class(**converted)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"the options of {owner} do not fit: {error}") from error


def _convert(value: Any, default: Any, what: str) -> Any:
    if not isinstance(value, str) or not isinstance(default, (bool, int, float)):
        return value
    try:
        if isinstance(default, bool):
            return {"1": True, "true": True, "0": False, "false": False}[value.lower()]
        return type(default)(value)
    except (KeyError, ValueError):
        raise InvalidArgument(
            f"{what} is {value!r}; expected {type(default).__name__}, such as {default!r}"
        ) from None


def _start(
    provider: type[Provider],
    options: Any,
    operators: OperatorTable,
    session_options: SessionOptions | None,
) -> Provider:
    try:
        return provider(options, operators, session_options)
    except TenonnxError:
        raise
    except Exception as error:
        raise EPFail(
            f"{provider.name} failed to start: {type(error).__name__}: {error}",
            hint="its check() said that it is usable here; tell its authors",
        ) from error


def _none_to_choose(plugins: PluginSet) -> EPFail:
    """Return the error for a caller who names no provider, where none runs unasked."""
    gone = [f"{r.name} ({r.error})" for r in plugins.records if r.builtin and r.error]
    unusable = [f"{p.name}: {why}" for p in plugins.unasked() if (why := why_unusable(p))]
    return EPFail(
        "no provider is named, and none is left that runs without a name"
        + (f"; plug-ins not in use: {', '.join(gone)}" if gone else "")
        + (f"; not usable here: {'; '.join(unusable)}" if unusable else ""),
        hint="use the plug-in `cpu`, or name a provider that `tenonnx providers` lists",
    )


def _normalize(
    plugins: PluginSet,
    requests: Sequence[ProviderRequest] | None,
    options: Sequence[Mapping[str, Any]] | None,
) -> Iterable[tuple[str | Provider, Mapping[str, Any] | None]]:
    if isinstance(requests, str | Mapping):
        instead = list(requests.items()) if isinstance(requests, Mapping) else [requests]
        kind = type(requests).__name__
        raise InvalidArgument(f"providers is a {kind}; pass a list: providers={instead!r}")
    if isinstance(options, Mapping):
        raise InvalidArgument(f"provider_options is a dict; pass a list: [{options!r}]")
    if not requests:
        requests = [p.name for p in plugins.unasked() if why_unusable(p) is None]
        if not requests:
            raise _none_to_choose(plugins)
    if options is not None and len(options) != len(requests):
        raise InvalidArgument(
            f"provider_options has {len(options)} entries for {len(requests)} providers"
        )
    for position, request in enumerate(requests):
        given = options[position] if options else None
        match request:
            case str() | Provider():
                yield request, given
            case (str() as name, own):
                yield name, {**(own or {}), **(given or {})}
            case _:
                raise InvalidArgument(
                    f"providers[{position}] is {request!r}; expected a name, (name, options) or "
                    "a Provider"
                )


def plugins_of(options: SessionOptions) -> PluginSet:
    """Return the plug-ins that options name; the process's if they name none.

    Raises:
        InvalidArgument: They name something else.
    """
    given = options.plugins
    if given is None:
        return default_plugins()
    if isinstance(given, PluginSet):
        return given
    raise InvalidArgument(f"SessionOptions.plugins is {given!r}; expected a PluginSet, or None")


def host_providers(plugins: PluginSet) -> list[Provider]:
    """Instantiate the usable providers that run on the host, with default options.

    Nobody asked for them, so one that has no default options or does not start is left out.
    """
    found = []
    for provider in plugins.unasked():
        if provider.device is HOST and why_unusable(provider) is None:
            try:
                options = provider.Options() if provider.Options else None
                found.append(provider(options, plugins.operators_for(provider)))
            except Exception as error:
                log.info("no constants are folded on %s: %r", provider.name, error)
    return found
