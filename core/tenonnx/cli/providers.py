"""``tenonnx providers``: which execution providers there are and whether they work here."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import typer

from tenonnx.cli.arguments import Json
from tenonnx.cli.output import emit_json, lines, table
from tenonnx.cli.state import state_of

if TYPE_CHECKING:
    from tenonnx.plugins import PluginSet
    from tenonnx.provider import Provider

HELP = """Lists the execution providers, and whether they work here.

\b
Examples:
  tenonnx providers
  tenonnx providers --json | jq '.[].name'
"""


def providers(context: typer.Context, as_json: Json = False) -> None:
    """Prints a row per execution provider."""
    plugins = state_of(context).plugins
    found = [describe_provider(plugins, cls) for cls in plugins.providers.values()]
    if as_json:
        emit_json(found)
        return
    rows = [
        (
            provider["name"],
            ", ".join(provider["aliases"]),
            "yes" if provider["usable"] else f"no: {provider['problem']}",
            provider["kernels"],
            ", ".join(f"{name}={value}" for name, value in provider["options"].items()),
        )
        for provider in found
    ]
    table(("provider", "aliases", "usable", "kernels", "options"), rows, right=("kernels",))
    if not rows:
        lines("no providers; `tenonnx plugins` says which plugins did not load")


def describe_provider(plugins: PluginSet, provider: type[Provider]) -> dict[str, Any]:
    """Returns what there is to know about a provider, fit for JSON."""
    problem = check_provider(provider)
    return {
        "name": provider.name,
        "aliases": list(provider.aliases),
        "usable": problem is None,
        "problem": problem,
        "options": _options(provider.Options),
        "kernels": None if problem else _kernels(plugins, provider),
    }


def check_provider(provider: type[Provider]) -> str | None:
    """Returns why a provider is not usable here; ``None`` if it is."""
    try:
        return provider.check()
    except Exception as error:  # a stranger's code may raise anything
        return f"its check failed: {type(error).__name__}: {error}"


def _options(options: type | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option in fields(options) if options else ():
        if option.default is not MISSING:
            found[option.name] = option.default
        elif option.default_factory is not MISSING:
            found[option.name] = option.default_factory()
        else:
            found[option.name] = None
    return found


def _kernels(plugins: PluginSet, provider: type[Provider]) -> int | None:
    """Returns the size of the provider's operator table, if it has one."""
    try:
        options = provider.Options() if provider.Options else None
        instance = provider(options, plugins.operators_for(provider))
    except Exception:  # required options, or a stranger's code
        return None
    operators = getattr(instance, "table", None)
    return len(operators) if operators is not None else None
