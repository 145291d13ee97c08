"""A plug-in that brings one thing."""

from __future__ import annotations

from typing import Any

from tenonnx.hookspecs import hookimpl
from tenonnx.plugins.manager import PluginSet


def plugins_and(hook: str, thing: Any) -> PluginSet:
    """Return the installed plug-ins, and one more that registers a thing through a hook."""

    def announce(register: Any) -> None:
        register(thing)

    plugins = PluginSet()
    plugins.register(type("Mine", (), {hook: staticmethod(hookimpl(announce))}))
    return plugins
