"""The server's results: a table, the bounds that they are held to, and figures of the page."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.page.figures import Figure
from bench.report import show

MIB = 1 << 20

ROWS = {
    "http": "a trivial model over HTTP, binary tensors",
    "grpc": "a trivial model over gRPC",
    "batch": "6 products with 1024 x 1024, requests joined",
    "memory": "a matrix of 134 MB in each of several workers",
}
MINE, BARE, KSERVE, APART = "tenonnx", "bare", "KServe's server", "not joined"

# The least ratio to the other's requests a second.
LEAST = {
    ("http", BARE): 0.7,
    ("http", KSERVE): 2.0,
    ("grpc", KSERVE): 1.2,
    ("batch", APART): 1.5,
}

# Private MiB that the model may add to a worker; what each may take besides the weights.
MORE_MIB, WORKER_MIB = 15, 110

Result = Mapping[str, Any]


def ratios(mine: Result, other: Result) -> list[float]:
    """Return one server's time a request over another's, round by round."""
    return [theirs / ours for ours, theirs in zip(mine["rates"], other["rates"], strict=True)]


def _pairs(rows: Sequence[Result]) -> Iterator[tuple[Result, Result]]:
    """Yield what this server did, with each of the others."""
    mine: Result = {}
    for row in rows:
        if row["row"] != "memory" and row["server"] == MINE:
            mine = row
        elif row["row"] != "memory":
            yield mine, row


def broken(rows: Sequence[Result]) -> list[str]:
    """Return the bounds that do not hold, in words."""
    told = []
    for mine, other in _pairs(rows):
        least = LEAST.get((mine["row"], other["server"]))
        share = 1 / statistics.median(ratios(mine, other))
        where = f"{mine['row']}, {mine['clients']} clients, {other['server']}"
        if least is not None and share < least:
            told.append(f"{where}: {share:.2f} of its rate, expected {least:g}")
        if other["server"] == KSERVE and mine["p99"] > other["p99"]:
            told.append(f"{where}: its 99th of 100 requests is faster")
    for row in rows:
        if row["row"] == "memory":
            told += _too_much(row)
    return told


def _too_much(row: Result) -> Iterator[str]:
    if row["more"] > MORE_MIB * MIB:
        yield f"memory: {row['more'] / MIB:.1f} MiB more a worker, expected {MORE_MIB}"
    most = row["weights"] + len(row["private"]) * WORKER_MIB * MIB
    if row["pss"] > most:
        yield f"memory: {row['pss'] / MIB:.0f} MiB of all workers, expected {most / MIB:.0f}"


def as_markdown(rows: Sequence[Result]) -> str:
    """Return the table."""
    lines = [
        "| row | clients | server | requests a second | median | 99th of 100 | its time : ours |"
    ]
    lines.append("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    mine: Result = {}
    for row in rows:
        if row["row"] == "memory":
            lines += ["", _memory(row)]
            continue
        mine = row if row["server"] == MINE else mine
        share = 1 / statistics.median(ratios(mine, row))
        lines.append(
            f"| {ROWS[row['row']]} | {row['clients']} | {row['server']} | {row['rate']:.0f} | "
            f"{show('_s', row['p50'])} | {show('_s', row['p99'])} | {share:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _memory(row: Result) -> str:
    mib = {name: row[name] / MIB for name in ("weights", "empty", "more", "pss", "theirs")}
    return (
        f"A matrix of {mib['weights']:.0f} MiB in {len(row['private'])} workers: each takes at "
        f"most {mib['more']:.1f} MiB more of its own than the {mib['empty']:.1f} of one without a "
        f"model, all together {mib['pss']:.0f} MiB (PSS). A process of onnxruntime's takes "
        f"{mib['theirs']:.1f} MiB more with it."
    )


def read(path: Path) -> list[Figure]:
    """Return the figures of a file of results."""
    rows: list[Result] = json.loads(path.read_text("utf-8"))["rows"]
    found = [figure for pair in _pairs(rows) for figure in _compared(*pair)]
    for row in rows:
        if row["row"] == "memory":
            found += _of_memory(row)
    return found


def _compared(mine: Result, other: Result) -> Iterator[Figure]:
    name, label, server = mine["row"], ROWS[mine["row"]], other["server"]
    clients = f"{mine['clients']} client{'s' * (mine['clients'] > 1)}"
    ours, its = (show("_s", row["clients"] / row["rate"]) for row in (mine, other))
    told = ratios(mine, other)
    ratio = statistics.median(told)
    if server == BARE:  # no contender: it looks at nothing that it is sent
        its = f"{its}; {1 / ratio:.2f} of its rate"
        yield Figure(name, label, f"a request, {clients}; a bare application", ours, its)
        return
    spread = (min(told), max(told))
    yield Figure(name, label, f"a request, {clients}", ours, its, ratio, spread, against=server)
    if server == KSERVE:
        ours, its = (show("_s", row["p99"]) for row in (mine, other))
        ratio = mine["p99"] / other["p99"]
        yield Figure(name, label, f"the 99th of 100, {clients}", ours, its, ratio, against=server)


def _of_memory(row: Result) -> Iterator[Figure]:
    label, count = ROWS["memory"], len(row["private"])
    ours, theirs = (f"{row[name] / MIB:.1f}" for name in ("more", "theirs"))
    kind = f"private MiB that it adds to each of {count}"
    ratio = row["more"] / row["theirs"]
    yield Figure("memory", label, kind, ours, theirs, ratio, against="onnxruntime")
    most = row["weights"] / MIB + count * WORKER_MIB
    pss = f"{row['pss'] / MIB:.1f}"
    yield Figure("memory", label, f"MiB of all {count} (PSS)", pss, f"at most {most:.0f} wanted")
