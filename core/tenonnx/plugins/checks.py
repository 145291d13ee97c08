"""The checks of a plug-in before its hooks are called."""

from __future__ import annotations

import inspect
from typing import Any

import pluggy

from tenonnx import hookspecs
from tenonnx.errors import PluginError, did_you_mean
from tenonnx.plugins.catalogue import DISTRIBUTION, PluginRecord
from tenonnx.process.distributions import release


def check_api(plugin: Any, record: PluginRecord) -> None:
    """Refuse a plug-in that says it was written for another version of the interface.

    Raises:
        PluginError: Both versions, and which side to update.
    """
    record.api = getattr(plugin, "tenonnx_api", None)
    if record.api is None or record.api == hookspecs.API_VERSION:
        return
    here = release()
    newer = isinstance(record.api, int) and record.api > hookspecs.API_VERSION
    raise PluginError(
        f"it was written for version {record.api} of the plug-in API, and tenonnx {here} has "
        f"version {hookspecs.API_VERSION}",
        hint=f"update {DISTRIBUTION if newer else 'the plug-in'}",
    )


def check_hooks(plugin: Any, record: PluginRecord) -> None:
    """Refuse a plug-in that implements no hook, or one that there is not.

    Raises:
        PluginError: Which, and what it may have meant.
    """
    known = [name for name, spec in vars(hookspecs).items() if hasattr(spec, "tenonnx_spec")]
    for name in record.hooks:
        if name not in known:
            raise PluginError(f"there is no hook {name!r}{did_you_mean(name, known)}")
    if not record.hooks:
        raise PluginError(
            f"{getattr(plugin, '__name__', plugin)!r} implements no hook",
            hint="decorate its functions with tenonnx.hookimpl",
        )


def refused(plugin: Any, error: pluggy.PluginValidationError) -> PluginError:
    """Return pluggy's complaint in words; it is about parameters, if nothing else is found."""
    for name, spec in vars(hookspecs).items():
        function = getattr(plugin, name, None)
        if not hasattr(spec, "tenonnx_spec") or not callable(function):
            continue
        taken, given = (inspect.signature(f).parameters for f in (function, spec))
        if unknown := [parameter for parameter in taken if parameter not in given]:
            return PluginError(
                f"its {name} takes {', '.join(unknown)}, and is called with {', '.join(given)}",
                hint="arguments of hooks come by name: call them as the hook does",
            )
    return PluginError(str(error).splitlines()[-1])
