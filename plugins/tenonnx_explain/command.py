"""``tenonnx explain``: a model's transforms, their near misses, and the provider of each node."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tenonnx.cli import arguments
from tenonnx.cli.model_tables import print_operators, print_placement
from tenonnx.cli.opening import Request, check_readable, parse_provider, session_options
from tenonnx.cli.output import (
    check_targets,
    count,
    duration,
    emit_json,
    lines,
    progress,
    table,
    title,
    write_text,
)
from tenonnx.cli.state import State, state_of
from tenonnx.errors import InvalidArgument, did_you_mean

HELP = """Explains what transforms and providers do to a model. Nothing is run.

Shows what every transform changed, what nearly matched and why it did not, which provider runs
each node and why, and which nodes run in one call.

\b
Examples:
  tenonnx explain model.onnx
  tenonnx explain model.onnx --nodes --transform attention
  tenonnx explain model.onnx --html model.html
  tenonnx explain model.onnx --json | jq '.transforms[] | select(.modified) | .name'
"""

# The most kinds of calls in the list.
MAX_CALLS = 12


def explain(
    context: typer.Context,
    model: arguments.Model,
    providers: arguments.Providers = arguments.NO_VALUES,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="List every node that transforms removed or added.")
    ] = False,
    transform: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Show this transform alone; may be repeated."),
    ] = arguments.NO_VALUES,
    html: Annotated[
        str,
        typer.Option(metavar="OUT.html", help="Write a page with the graph, colored by provider."),
    ] = "",
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    roots: arguments.Roots = arguments.NO_VALUES,
    as_json: arguments.Json = False,
) -> None:
    """Print a model's explanation."""
    check_targets(html)
    report = _gather(state_of(context), model, Request(providers, level, without, roots))
    report["transforms"] = _chosen(report["transforms"], transform)
    if html:
        from tenonnx_explain.page import as_page

        write_text(html, as_page(report))
    if as_json:
        if not nodes:
            del report["nodes"]
            for change in report["transforms"]:
                del change["removed"], change["added"], change["changed"]
        emit_json(report)
    else:
        _print(report, nodes)


def _gather(state: State, model: str, request: Request) -> dict[str, Any]:
    from tenonnx.cli.explanation import explain_model

    check_readable(model)
    options = session_options(state, request)
    requests = [parse_provider(text) for text in request.providers]
    with progress(total=len(state.plugins.transforms) + 1) as doing:
        return explain_model(model, options, requests or None, doing)


def _chosen(transforms: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    known = [change["name"] for change in transforms]
    for name in names:
        if name not in known:
            raise InvalidArgument(
                f"--transform {name}: no such transform ran{did_you_mean(name, known)}",
                hint=f"those that ran: {', '.join(known) or 'none'}",
            )
    return [change for change in transforms if not names or change["name"] in names]


def _print(report: dict[str, Any], nodes: bool) -> None:
    lines(
        f"{report['model']}: {count(report['nodes_before'], 'node')} before transforms, "
        f"{report['nodes_after']} after, in {count(report['calls']['count'], 'call')}"
    )
    _print_transforms(report["transforms"])
    if nodes:
        for change in report["transforms"]:
            _print_changes(change)
    title("Operators")
    print_operators(report["operators_before"], report["operators_after"])
    print_placement(report["placement"], every=nodes)
    _print_calls(report["calls"])
    if report["calls"]["nearly"]:
        title("Nearly one call")
        lines(*report["calls"]["nearly"])


def _print_transforms(transforms: list[dict[str, Any]]) -> None:
    title("Transforms")
    rows = [
        (
            change["name"],
            change["level"],
            f"{change['nodes_before']} → {change['nodes_after']}",
            _operators(change),
            duration(change["seconds"]) if change["seconds"] else "",
        )
        for change in transforms
        if change["modified"]
    ]
    if rows:
        table(("transform", "level", "nodes", "changed", "time"), rows, right=("time",))
    idle = [change["name"] for change in transforms if not change["modified"]]
    if idle:
        lines(f"changed nothing: {', '.join(idle)}")
    if not transforms:
        lines("none ran")
    for heading, key in (("Notes", "notes"), ("Nearly matched", "nearly")):
        told = [(change["name"], line) for change in transforms for line in change[key]]
        if told:
            title(heading)
            lines(*(f"{name}: {line}" for name, line in told))


def _operators(change: dict[str, Any]) -> str:
    changed = change["operators"].items()
    text = ", ".join(f"{name} {before} → {after}" for name, (before, after) in changed)
    return text or "the same number of each operator, connected differently"


def _print_changes(change: dict[str, Any]) -> None:
    if not change["modified"]:
        return
    title(f"What {change['name']} changed")
    lines(*(f"- {text}" for text in change["removed"]))
    lines(*(f"+ {text}" for text in change["added"]))
    for pair in change["changed"]:
        lines(f"~ {pair['before']}", f"  {pair['after']}")


def _print_calls(calls: dict[str, Any]) -> None:
    joined = list(calls["joined"].items())
    if not joined:
        return
    title("Nodes that run in one call")
    table(("calls", "nodes"), [(times, kinds) for kinds, times in joined[:MAX_CALLS]], ("calls",))
    if len(joined) > MAX_CALLS:
        lines(f"... and {len(joined) - MAX_CALLS} other kinds (--json has them)")
