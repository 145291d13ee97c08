"""``tenonnx providers``: which execution providers there are and whether they work here."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from tenonnx.cli.arguments import Json
from tenonnx.cli.output import emit_json, lines, table, title
from tenonnx.cli.state import state_of

if TYPE_CHECKING:
    from tenonnx.plugins.manager import PluginSet
    from tenonnx.provider import Provider

HELP = """Lists the execution providers, and whether each works on this machine.

\b
Examples:
  tenonnx providers
  tenonnx providers --options
  tenonnx providers --json | jq '.[].name'
"""

# A provider with more options gets their number instead of their names.
MAX_LISTED_OPTIONS: Final = 4

Options: TypeAlias = Annotated[
    bool, typer.Option("--options", help="List every option: its default, and what it means.")
]


def providers(context: typer.Context, options: Options = False, as_json: Json = False) -> None:
    """Print a row per execution provider, or per option of each."""
    plugins = state_of(context).plugins
    found = [describe_provider(plugins, cls) for cls in plugins.providers.values()]
    if as_json:
        emit_json(found)
        return
    if options:
        _print_options(found)
        return
    rows = [
        (
            provider["name"],
            ", ".join(provider["aliases"]),
            "yes" if provider["usable"] else f"no: {provider['problem']}",
            provider["kernels"],
            _some(provider["options"]),
        )
        for provider in found
    ]
    header = ("provider", "aliases", "usable", "kernels", "options")
    table(header, rows, ("kernels",), ("options", "aliases", "kernels"))
    if not rows:
        lines("no providers; `tenonnx plugins` says which plug-ins did not load")


def _some(options: dict[str, Any]) -> str:
    if len(options) > MAX_LISTED_OPTIONS:
        return f"{len(options)}, see --options"
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _print_options(found: list[dict[str, Any]]) -> None:
    for provider in found:
        short = (*provider["aliases"], provider["name"])[0]
        title(provider["name"] + (f": -p {short}:OPTION=VALUE" if provider["options"] else ""))
        rows = [
            (name, default, provider["meanings"].get(name, ""))
            for name, default in provider["options"].items()
        ]
        table(("option", "default", "meaning"), rows)
        if not rows:
            lines("takes no options")


def describe_provider(plugins: PluginSet, provider: type[Provider]) -> dict[str, Any]:
    """Return what there is to know about a provider, fit for JSON."""
    from tenonnx.provider import why_unusable

    problem = why_unusable(provider)
    return {
        "name": provider.name,
        "aliases": list(provider.aliases),
        "usable": problem is None,
        "problem": problem,
        "options": _options(provider.Options),
        "meanings": _meanings(provider.Options),
        "kernels": None if problem else _kernels(plugins, provider),
    }


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


def _meanings(options: type | None) -> dict[str, str]:
    """Return what a class and its bases say of attributes: ``name, name: text`` under a heading."""
    found: dict[str, str] = {}
    for each in reversed(options.__mro__ if options else ()):
        text = inspect.cleandoc(each.__doc__ or "")
        section = re.search(r"^(?:Attributes|Args):\n((?:[ ]+.*\n?|\n)*)", text, re.MULTILINE)
        for entry in re.split(r"\n+(?=[ ]{4}\S)", section[1].rstrip()) if section else ():
            names, _, meaning = " ".join(entry.split()).partition(": ")
            found |= dict.fromkeys(re.split(r",\s*", names), meaning.replace("``", ""))
    return found


def _kernels(plugins: PluginSet, provider: type[Provider]) -> int | None:
    """Return the size of the provider's operator table, if it has one."""
    try:
        options = provider.Options() if provider.Options else None
        instance = provider(options, plugins.operators_for(provider))
    except Exception:  # required options, or a stranger's code
        return None
    operators = getattr(instance, "table", None)
    return len(operators) if operators is not None else None
