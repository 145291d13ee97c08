"""``tenonnx memory``: what a model takes in one process and in several at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tenonnx.cli.arguments import (
    NOTHING,
    Dims,
    Inputs,
    Json,
    Level,
    LevelChoice,
    Model,
    Providers,
    Roots,
    Without,
)
from tenonnx.cli.opening import Request, open_session
from tenonnx.cli.output import emit_json, lines, progress, size, table, title
from tenonnx.cli.state import state_of
from tenonnx.errors import Fail

HELP = """Shows which bytes a model takes, who holds them, and what processes share.

Starts the given number of processes, each of which opens the model and runs it once on made-up
inputs, and reads their memory while all of them are alive.

\b
Examples:
  tenonnx memory model.onnx
  tenonnx memory model.onnx --processes 8 --dim batch=4
"""

FIELDS = {"Rss": "resident", "Pss": "proportional", "Anonymous": "private"}
"""What is read from smaps_rollup, and what it is called here."""


def memory(
    context: typer.Context,
    model: Model,
    processes: Annotated[int, typer.Option(min=1, help="Processes at the same time.")] = 1,
    inputs: Inputs = NOTHING,
    dims: Dims = NOTHING,
    providers: Providers = NOTHING,
    level: LevelChoice = Level.ALL,
    without: Without = NOTHING,
    roots: Roots = NOTHING,
    as_json: Json = False,
    child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
) -> None:
    """Measures a model's memory."""
    if child:
        request = Request(providers=providers, level=level, without=without, roots=roots)
        hold(context, model, request, inputs, dims)
        return
    arguments = _repeated(
        ("--input", inputs), ("--dim", dims), ("--provider", providers),
        ("--disable-transform", without), ("--allow-root", roots),
    )  # fmt: skip
    found = measure(model, processes, [*arguments, "--level", level.value])
    if as_json:
        emit_json(found)
        return
    show(found)


def _repeated(*options: tuple[str, Sequence[str]]) -> list[str]:
    return [part for name, values in options for value in values for part in (name, value)]


def hold(
    context: typer.Context, model: str, request: Request, inputs: Sequence[str], dims: Sequence[str]
) -> None:
    """Opens a model, runs it once, tells of it on standard output, and waits to be read."""
    from tenonnx.cli.feeds import make_feeds, parse_dims

    state = state_of(context)
    state.plugins  # noqa: B018 - discovery belongs to the base, not to the model
    base = rollup("self")
    session, _ = open_session(state, model, request)
    loaded = rollup("self")
    feeds = make_feeds(session.model.graph, list(inputs) or ["random"], parse_dims(dims), 0)
    session.run(None, feeds)
    report = session.registry.report()
    weights = {kind: getattr(report, kind) for kind in ("mapped", "resident", "private", "derived")}
    print(json.dumps({"base": base, "loaded": loaded, "weights": weights, "text": str(report)}))
    sys.stdout.flush()
    sys.stdin.read()


def rollup(process: int | str) -> dict[str, int]:
    """Returns a process's memory in bytes, by the names in ``FIELDS``."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    found = {line.split(":")[0]: line.split() for line in text.splitlines()[1:]}
    return {name: int(found[field][1]) * 1024 for field, name in FIELDS.items()}


def measure(model: str, count: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Starts processes that hold the model, and reads their memory while they do.

    Raises:
        Fail: A process failed; its own message is part of the error's.
    """
    command = [sys.executable, "-m", "tenonnx", "memory", model, "--child", *arguments]
    children = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    try:
        with progress(count) as tell:
            told = []
            for done, process in enumerate(children):
                tell(f"opening and running in {count} processes", done)
                told.append(_answer(process))
        rows = [
            {"pid": c.pid, "base": t["base"], "loaded": t["loaded"], "run": rollup(c.pid)}
            for c, t in zip(children, told, strict=True)
        ]
    finally:
        for process in children:
            process.kill()
            process.communicate()
    return {"processes": rows, "weights": told[0]["weights"], "report": told[0]["text"]}


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    if not line:
        raise Fail(f"a measuring process failed:\n{process.stderr.read().strip()}")
    return json.loads(line)  # type: ignore[no-any-return]


def show(found: dict[str, Any]) -> None:
    """Prints what was measured."""
    lines(found["report"])
    title("Processes")
    rows = []
    for row in found["processes"]:
        added = {k: row["run"][k] - row["base"][k] for k in FIELDS.values()}
        load = row["loaded"]["private"] - row["base"]["private"]
        rows.append(
            (row["pid"], size(load), *(size(added[k]) for k in ("private", "proportional")),
             size(row["run"]["resident"]))
        )  # fmt: skip
    header = ("pid", "private, loaded", "private, run", "share of all (PSS)", "resident in all")
    table(header, rows, right=header)
    total = sum(r["run"]["proportional"] - r["base"]["proportional"] for r in found["processes"])
    lines("", f"{len(rows)} processes take {size(total)} more together than without the model")
