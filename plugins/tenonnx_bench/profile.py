"""``tenonnx profile``: the time of a model's nodes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenonnx.cli import arguments, timing
from tenonnx.cli.opening import Request, open_session, profiler_of
from tenonnx.cli.output import (
    check_targets,
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
from tenonnx.cli.state import State, state_of
from tenonnx_bench.bench import limited, rate
from tenonnx_bench.hot import Event, Hot, Watched, by_node, by_operator, watched
from tenonnx_bench.measure import percentiles

if TYPE_CHECKING:
    from tenonnx import InferenceSession

HELP = """Shows which operators and nodes a model's time goes to.

Waits until runs get no faster, for --settle seconds at most. First it
times runs without watching them: p50, p99 and runs per second. Then it watches some runs, and adds
up the time of every node. A watched run takes longer, because its nodes run one by one. The
operators and the rest, which is the time between them, add up to a watched run. The cost of
watching is shown separately.

The page of --html has a timeline, operators, nodes, and a button that opens the trace in Perfetto,
which needs the network. The trace opens in https://ui.perfetto.dev and chrome://tracing, and has
onnxruntime's names and fields. Inputs are random unless given.

\b
Examples:
  tenonnx profile model.onnx --top 20
  tenonnx profile model.onnx --dim batch=8 --trace trace.json --html profile.html
"""

# A watched run's time in runs without watching from which on its shares are not theirs.
MOST_SLOWER = 1.5

# Time for unwatched runs, of which there are at least as many as watched ones.
TIMED_SECONDS = 0.5


@dataclass(frozen=True)
class Profile:
    """The measurements of a model.

    Attributes:
        model: Its path.
        runs: Watched runs.
        settling: The time until runs got no faster.
        unwatched: Percentiles of runs without watching.
        watched: The times of a watched run.
        operators: By operator, the longest first.
        nodes: By node, the longest first.
        events: The trace of the watched runs.
    """

    model: str
    runs: int
    settling: timing.Settling
    unwatched: dict[str, float]
    watched: Watched
    operators: list[Hot]
    nodes: list[Hot]
    events: list[Event]


def profile(
    context: typer.Context,
    model: arguments.Model,
    inputs: arguments.Inputs = arguments.NO_VALUES,
    dims: arguments.Dims = arguments.NO_VALUES,
    seed: arguments.Seed = 0,
    top: Annotated[int, typer.Option(help="How many nodes to show.", min=1)] = 20,
    runs: Annotated[int, typer.Option(help="Watched runs.", min=1)] = 10,
    warmup: arguments.WarmUp = 2,
    settle: arguments.Settle = 10.0,
    trace: Annotated[
        str, typer.Option(metavar="OUT.json", help="Write the trace of the watched runs.")
    ] = "",
    html: Annotated[
        str, typer.Option(metavar="OUT.html", help="Write a page with a timeline and all nodes.")
    ] = "",
    providers: arguments.Providers = arguments.NO_VALUES,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    roots: arguments.Roots = arguments.NO_VALUES,
    threads: arguments.Threads = 0,
    as_json: arguments.Json = False,
) -> None:
    """Profile a model."""
    from tenonnx.cli.feeds import make_feeds, parse_dims

    check_targets(trace, html)
    request = Request(providers, level, without, roots, threads)
    state = state_of(context)
    session, _ = open_session(state, model, request)
    feeds = make_feeds(session.model.graph, inputs or ["random"], parse_dims(dims), seed)
    with limited(threads), progress(1.0) as show:
        found = _measure((state, session), model, feeds, (runs, warmup, settle), show)
    if trace:
        write_text(trace, json.dumps(found.events))
    if html:
        from tenonnx_bench.profile_page import as_html

        write_text(html, as_html(found))
    if as_json:
        emit_json(_as_data(found, top))
    else:
        _print(found, top)


def _measure(
    opened: tuple[State, InferenceSession],
    model: str,
    feeds: dict[str, Any],
    how: tuple[int, int, float],
    show: Callable[[str, float], None],
) -> Profile:
    """Time runs, then watch some; ``how`` is their number, runs before, seconds to settle."""
    (state, session), (runs, warmup, settle) = opened, how
    run = functools.partial(session.run, None, feeds)
    show("warming up", 0)
    settling = timing.settle(run, settle, warmup)
    show("running", 0)
    times = list(timing.repeat(run, TIMED_SECONDS, runs))
    profiler = profiler_of(state, session)
    session.watch(profiler)
    run()  # the first watched run makes the code for it
    skipped = len(profiler.events)
    for done in range(runs):
        show("watching", done / runs)
        run()
    events = profiler.events[skipped:]
    return Profile(
        model, runs, settling, percentiles(times), watched(events),
        by_operator(events), by_node(events), events,
    )  # fmt: skip


def _as_data(found: Profile, top: int) -> dict[str, Any]:
    return {
        "model": found.model,
        "runs": found.runs,
        "settled": found.settling.settled,
        "settle_seconds": found.settling.seconds,
        "unwatched": found.unwatched,
        "run_seconds": found.watched.run,
        "rest_seconds": found.watched.rest,
        "watching_seconds": found.watched.watching,
        "operators": [hot.as_data() for hot in found.operators],
        "nodes": [hot.as_data() for hot in found.nodes[:top]],
    }


def summary(found: Profile) -> list[str]:
    """Return sentences on the runs as a whole."""
    times = found.unwatched
    told = [
        f"a run takes {duration(times['median'])} (p50; p99 {duration(times['p99'])}, "
        f"{rate(times['runs_per_second'])} runs/s)",
        f"watched, {count(found.runs, 'run')} of {duration(found.watched.run)}, and "
        f"{duration(found.watched.watching)} for watching each run",
    ]
    slower = found.watched.run / max(times["median"], 1e-9)
    if slower > MOST_SLOWER:
        told.append(
            f"shares are of watched runs, whose nodes run one by one and take {slower:.1f} times "
            "as long: nodes that a run computes together take less of it than it seems"
        )
    if not found.settling.settled:
        waited = duration(found.settling.seconds)
        told.append(f"runs still got faster after {waited} (--settle allows more)")
    return told


def _print(found: Profile, top: int) -> None:
    lines(*summary(found))
    title("Operators")
    columns = ("time a run", "share", "calls")
    rows: list[Sequence[object]] = [
        (hot.name, duration(hot.seconds / found.runs), f"{hot.share:.1%}", hot.calls)
        for hot in found.operators
    ]
    rest, whole = found.watched.rest, found.watched.run
    rows.append(("the rest, between operators", duration(rest), f"{rest / whole:.1%}", None))
    rows.append(("a watched run", duration(whole), "100.0%", None))
    table(("operator", *columns), rows, right=columns)
    title("Nodes")
    detailed = [
        (
            hot.name,
            hot.operator,
            duration(hot.seconds / found.runs),
            f"{hot.share:.1%}",
            hot.calls,
            size(hot.output_bytes / hot.calls),
            size(hot.copied_bytes / hot.calls),
            hot.provider,
            hot.kernel,
        )
        for hot in found.nodes[:top]
    ]
    header = ("node", "operator", *columns, "output", "copied", "provider", "kernel")
    spare = ("kernel", "calls", "output", "copied", "provider")
    table(header, detailed, (*columns, "output", "copied"), spare)
    if len(found.nodes) > top:
        lines("", f"{len(found.nodes) - top} more; --top {len(found.nodes)} shows them all")
