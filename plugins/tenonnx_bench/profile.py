"""``tenonnx profile``: which nodes a model's time goes to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tenonnx.cli import arguments
from tenonnx.cli.opening import Request, open_profiled, wait_for_kernels
from tenonnx.cli.output import (
    count,
    duration,
    emit_json,
    lines,
    progress,
    size,
    table,
    title,
    write_text,
)
from tenonnx.cli.state import state_of
from tenonnx_bench.hot import Hot, as_html, by_node, by_operator, run_seconds

HELP = """Shows which operators and nodes a model's time goes to.

Runs the model a number of times, after some runs that do not count and once its kernels are
compiled, and adds up what every node takes. Watching costs about a microsecond for each node of
each run. The trace opens in https://ui.perfetto.dev and chrome://tracing; its events have
onnxruntime's names and fields. Inputs are random unless given.

\b
Examples:
  tenonnx profile model.onnx --top 20
  tenonnx profile model.onnx --dim batch=8 --trace trace.json --html hot.html
"""


def profile(
    context: typer.Context,
    model: arguments.Model,
    inputs: arguments.Inputs = arguments.NOTHING,
    dims: arguments.Dims = arguments.NOTHING,
    seed: arguments.Seed = 0,
    top: Annotated[int, typer.Option(help="How many nodes to show.", min=1)] = 20,
    runs: Annotated[int, typer.Option(help="Runs that count.", min=1)] = 10,
    warmup: Annotated[int, typer.Option(help="Runs that do not count.", min=0)] = 2,
    trace: Annotated[
        str, typer.Option(metavar="OUT.json", help="Write the trace of the counted runs.")
    ] = "",
    html: Annotated[
        str, typer.Option(metavar="OUT.html", help="Write a page with all nodes.")
    ] = "",
    providers: arguments.Providers = arguments.NOTHING,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NOTHING,
    roots: arguments.Roots = arguments.NOTHING,
    as_json: arguments.Json = False,
) -> None:
    """Profiles a model."""
    from tenonnx.cli.feeds import make_feeds, parse_dims

    request = Request(providers, level, without, roots)
    session, profiler = open_profiled(state_of(context), model, request)
    feeds = make_feeds(session.model.graph, inputs or ["random"], parse_dims(dims), seed)
    with progress(1.0) as show:
        wait_for_kernels(session, show)
        for _ in range(warmup):
            session.run(None, feeds)
            wait_for_kernels(session, show)  # which runs ask for, too
    skipped = len(profiler.events)
    for _ in range(runs):
        session.run(None, feeds)
    events = profiler.events[skipped:]
    nodes, operators = by_node(events), by_operator(events)
    seconds = run_seconds(events)
    if trace:
        write_text(trace, json.dumps(events))
    if html:
        write_text(html, as_html(model, runs, seconds, operators, nodes))
    if as_json:
        emit_json(_as_data(model, runs, seconds, operators, nodes[:top]))
    else:
        _print(runs, seconds, operators[:top], nodes, top)


def _as_data(
    model: str, runs: int, seconds: float, operators: Sequence[Hot], nodes: Sequence[Hot]
) -> dict[str, Any]:
    return {
        "model": model,
        "runs": runs,
        "run_seconds": seconds / runs,
        "operators": [hot.as_data() for hot in operators],
        "nodes": [hot.as_data() for hot in nodes],
    }


def _print(
    runs: int, seconds: float, operators: Sequence[Hot], nodes: Sequence[Hot], top: int
) -> None:
    lines(f"{count(runs, 'run')} of {duration(seconds / runs)}")
    title("Operators")
    columns = ("time a run", "share", "calls")
    rows = [(h.name, duration(h.seconds / runs), f"{h.share:.1%}", h.calls) for h in operators]
    table(("operator", *columns), rows, right=columns)
    title("Nodes")
    detailed = [
        (
            hot.name,
            hot.operator,
            duration(hot.seconds / runs),
            f"{hot.share:.1%}",
            hot.calls,
            size(hot.output_bytes / hot.calls),
            size(hot.copied_bytes / hot.calls),
            hot.provider,
            hot.kernel,
        )
        for hot in nodes[:top]
    ]
    header = ("node", "operator", *columns, "output", "copied", "provider", "kernel")
    table(header, detailed, right=(*columns, "output", "copied"))
    if len(nodes) > top:
        lines("", f"{len(nodes) - top} more; --top {len(nodes)} shows them all")
