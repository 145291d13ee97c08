"""A page that shows a profile: a run's timeline, operators, nodes, and a way to Perfetto."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from tenonnx.cli.output import count, duration, size
from tenonnx_bench.bench import rate
from tenonnx_bench.hot import RUN_EVENT, Event, Hot

if TYPE_CHECKING:
    from tenonnx_bench.profile import Profile

# Colors of operators; further ones share the last color.
COLORS = 8

# The most events of the trace on the page; more would open slowly.
MAX_EVENTS = 50_000

# The most rows of the table of nodes.
MAX_TABLE_ROWS = 2_000


def as_html(found: Profile) -> str:
    """Return a page that needs no other file, and the network only for Perfetto."""
    names = [hot.name for hot in found.operators]
    shown = _whole_runs(found.events)
    # A model's names must not contain the end of a script element.
    data = json.dumps(
        {
            "title": Path(found.model).name,
            "trace": shown,
            "run": _middle_run(shown),
            "colors": {name: min(at, COLORS - 1) for at, name in enumerate(names)},
        }
    ).replace("</", "<\\/")
    return Template(_file("profile.html")).substitute(
        title=escape(Path(found.model).name),
        style=_file("profile.css"),
        summary=_summary(found),
        tiles=_tiles(found),
        operators=_operators(found),
        left_out=_left_out(found.nodes),
        nodes=_nodes(found),
        data=data,
        script=_file("profile.js"),
    )


def _file(name: str) -> str:
    return files("tenonnx_bench").joinpath(name).read_text("utf-8")


def _summary(found: Profile) -> str:
    told = [f"{count(found.runs, 'watched run')} of {duration(found.watched.run)}"]
    told.append(f"watching takes {duration(found.watched.watching)} more")
    if not found.settling.settled:
        told.append(f"runs still got faster after {duration(found.settling.seconds)}")
    return escape("; ".join(told) + ".")


def _tiles(found: Profile) -> str:
    times = found.unwatched
    tiles = (
        (duration(times["median"]), "a run, unwatched (p50)"),
        (duration(times["p99"]), "p99"),
        (rate(times["runs_per_second"]), "runs a second"),
        (f"{found.watched.rest / found.watched.run:.0%}", "of a watched run between operators"),
    )
    return "".join(f"<div><b>{escape(value)}</b>{words}</div>" for value, words in tiles)


def _whole_runs(events: Sequence[Event]) -> list[Event]:
    """Return the events of as many whole runs as fit; each run ends with an event of its own."""
    ends = [at + 1 for at, event in enumerate(events) if event["name"] == RUN_EVENT]
    fitting = [end for end in ends if end <= MAX_EVENTS] or ends[:1]
    return list(events[: fitting[-1]])


def _middle_run(events: Sequence[Event]) -> list[float]:
    """Return the start and the length of the run of median length, in microseconds."""
    runs = sorted((e for e in events if e["name"] == RUN_EVENT), key=lambda event: event["dur"])
    middle = runs[(len(runs) - 1) // 2]
    return [middle["ts"], middle["dur"]]


def _operators(found: Profile) -> str:
    most = max([found.watched.rest, *(hot.seconds / found.runs for hot in found.operators)])
    rows = [
        _bar_row(hot.name, min(at, COLORS - 1), hot.seconds / found.runs, hot.share, most)
        + f'<td class="n">{hot.calls // found.runs}'
        for at, hot in enumerate(found.operators)
    ]
    rest, whole = found.watched.rest, found.watched.run
    rows.append(_bar_row("the rest, between operators", "rest", rest, rest / whole, most) + "<td>")
    sums = f'<td class="n">{duration(whole)}<td class="n">100.0%<td><td>'
    rows.append(f'<tr class="sum"><td>a watched run{sums}')
    numbers = '<th class="n">time a run<th class="n">share<th class="bar"><th class="n">calls a run'
    return f"<table><tr><th>operator{numbers}{''.join(rows)}</table>"


def _bar_row(name: str, color: Any, seconds: float, share: float, most: float) -> str:
    width = 100 * seconds / most if most else 0
    bar = f'<div class="c{color}" style="width:{width:.1f}%"></div>'
    numbers = f'<td class="n">{duration(seconds)}<td class="n">{share:.1%}<td class="bar">{bar}'
    return f"<tr><td>{escape(name)}{numbers}"


def _left_out(nodes: Sequence[Hot]) -> str:
    more = len(nodes) - MAX_TABLE_ROWS
    return f"{count(more, 'node')} with the least time not shown" if more > 0 else ""


def _nodes(found: Profile) -> str:
    order = {hot.name: min(at, COLORS - 1) for at, hot in enumerate(found.operators)}
    rows = []
    for hot in found.nodes[:MAX_TABLE_ROWS]:
        texts = f"<td>{escape(hot.provider)}<td>{escape(hot.kernel)}"
        rows.append(
            f'<tr><td>{escape(hot.name)}<td><i class="c{order[hot.operator]}"></i>'
            f'{escape(hot.operator)}<td class="n">{duration(hot.seconds / found.runs)}'
            f'<td class="n">{hot.share:.1%}<td class="n">{size(hot.output_bytes / hot.calls)}'
            f'<td class="n">{size(hot.copied_bytes / hot.calls)}{texts}'
        )
    numbers = "".join(f'<th class="n">{n}' for n in ("time a run", "share", "output", "copied"))
    head = f"<tr><th>node<th>operator{numbers}<th>provider<th>kernel"
    return f'<div class="wide"><table id="nodes">{head}{"".join(rows)}</table></div>'
