"""Adding up a trace: what operators and nodes take, and a page that shows it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx.cli.output import duration, size

Event = dict[str, Any]

SUFFIX = "_kernel_time"
MICROSECOND = 1e-6


@dataclass
class Hot:
    """What one node, or all nodes of one operator, took.

    Attributes:
        name: The node, or the operator.
        operator: The operator.
        provider: Who ran it.
        kernel: The function that did.
        calls: How often it ran.
        seconds: How long, in all.
        share: Of the time of all nodes.
        output_bytes: What it made, in all.
        copied_bytes: What was brought from other devices for it, in all.
    """

    name: str
    operator: str
    provider: str
    kernel: str
    calls: int = 0
    seconds: float = 0.0
    share: float = 0.0
    output_bytes: int = 0
    copied_bytes: int = 0

    def as_data(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return dict(vars(self))


def by_node(events: Iterable[Event]) -> list[Hot]:
    """Returns what every node took, the longest first."""
    return _add_up(events, lambda event: event["name"].removesuffix(SUFFIX))


def by_operator(events: Iterable[Event]) -> list[Hot]:
    """Returns what every operator took, the longest first."""
    return _add_up(events, lambda event: event["args"]["op_name"])


def run_seconds(events: Iterable[Event]) -> float:
    """Returns how long the runs took, in all."""
    runs = [int(event["dur"]) for event in events if event["name"] == "model_run"]
    return sum(runs) * MICROSECOND


def _add_up(events: Iterable[Event], key: Callable[[Event], str]) -> list[Hot]:
    found: dict[str, Hot] = {}
    for event in events:
        if event["cat"] != "Node":
            continue
        args, name = event["args"], key(event)
        hot = found.setdefault(name, Hot(name, args["op_name"], args["provider"], args["kernel"]))
        hot.calls += 1
        hot.seconds += event["dur"] * MICROSECOND
        hot.output_bytes += int(args["output_size"])
        hot.copied_bytes += int(args["copied_size"])
    total = sum(hot.seconds for hot in found.values()) or 1.0
    for hot in found.values():
        hot.share = hot.seconds / total
    return sorted(found.values(), key=lambda hot: -hot.seconds)


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ padding: .2em .8em .2em 0; text-align: left; vertical-align: baseline }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }}
td.bar {{ width: 20% }}
td.bar div {{ background: #4a7dbd; height: .8em }}
tr:nth-child(even) {{ background: #8881 }}
@media (prefers-color-scheme: dark) {{ body {{ background: #111; color: #ddd }} }}
</style>
<h1>{title}</h1>
<p>{runs} runs of {time}</p>
<h2>Operators</h2>
{operators}
<h2>Nodes</h2>
{nodes}
</html>
"""


def as_html(
    model: str, runs: int, seconds: float, operators: Sequence[Hot], nodes: Sequence[Hot]
) -> str:
    """Returns a page that needs nothing but itself."""
    return PAGE.format(
        title=html.escape(model),
        runs=runs,
        time=duration(seconds / runs),
        operators=_table(operators, runs),
        nodes=_table(nodes, runs),
    )


def _table(rows: Sequence[Hot], runs: int) -> str:
    names = ("time a run", "share", "calls", "copied")
    numbers = "".join(f'<th class="n">{name}' for name in names)
    head = f"<tr><th>name<th>operator{numbers}<th><th>provider<th>kernel"
    return f"<table>{head}{''.join(_row(hot, runs) for hot in rows)}</table>"


def _row(hot: Hot, runs: int) -> str:
    name, operator, provider, kernel = map(
        html.escape, (hot.name, hot.operator, hot.provider, hot.kernel)
    )
    numbers = (
        duration(hot.seconds / runs),
        f"{hot.share:.1%}",
        hot.calls,
        size(hot.copied_bytes / runs),
    )
    cells = "".join(f'<td class="n">{number}' for number in numbers)
    bar = f'<td class="bar"><div style="width:{hot.share:.1%}"></div>'
    return f"<tr><td>{name}<td>{operator}{cells}{bar}<td>{provider}<td>{kernel}"
