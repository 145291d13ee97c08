"""``tenonnx memory``: a model's memory in one process and in several at once."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tenonnx import Fail, InvalidArgument
from tenonnx.cli import arguments
from tenonnx.cli.opening import Request, check_names, load_original
from tenonnx.cli.output import (
    check_targets,
    emit_json,
    lines,
    progress,
    say,
    size,
    table,
    title,
    write_text,
)
from tenonnx.cli.state import State, state_of
from tenonnx_bench.peers import ONNXRUNTIME as PEER
from tenonnx_bench.peers import is_installed

HELP = """Shows how much memory a model takes, and what several processes share.

Starts processes that open the model at the same time and run it on random inputs, and reads their
memory. Memory of the code itself is left out: every process first opens and runs a tiny model.

--html draws private and mapped memory, at the peak, after the runs, and over time. If onnxruntime
is installed, it runs in processes of its own, in turn with tenonnx. The page needs no network.

\b
Examples:
  tenonnx memory model.onnx
  tenonnx memory model.onnx --processes 8 --dim batch=4
  tenonnx memory model.onnx --processes 4 --html memory.html
"""

OURS = "tenonnx"


def memory(
    context: typer.Context,
    model: arguments.Model,
    processes: Annotated[int, typer.Option(min=1, help="Processes at the same time.")] = 1,
    html: Annotated[str, typer.Option(metavar="OUT.html", help="Write a page with drawings.")] = "",
    peer: Annotated[
        bool | None,
        typer.Option(
            "--peer/--no-peer",
            help=f"Measure {PEER}, too. By default with --html, if it is installed.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each; the median is shown.")] = 1,
    inputs: arguments.Inputs = arguments.NO_VALUES,
    dims: arguments.Dims = arguments.NO_VALUES,
    providers: arguments.Providers = arguments.NO_VALUES,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    roots: arguments.Roots = arguments.NO_VALUES,
    threads: arguments.Threads = 0,
    as_json: arguments.Json = False,
    child: Annotated[str, typer.Option("--child", hidden=True)] = "",
    feeds: Annotated[str, typer.Option("--feeds", hidden=True)] = "",
) -> None:
    """Measure a model's memory."""
    state, request = state_of(context), Request(providers, level, without, roots, threads)
    if child:
        from tenonnx_bench.held import hold

        hold(state, child, model, request, feeds)
        return
    check_targets(html)
    check_names(state, request)
    if peer is None:
        peer = bool(html) and is_installed(PEER)
    elif peer and not is_installed(PEER):
        raise InvalidArgument(f"{PEER} is not installed", hint=f"pip install {PEER}")
    contenders = (OURS, PEER) if peer else (OURS,)
    # One file of inputs for all processes: making them would count as each process's memory.
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "feeds")
        given.write_bytes(pickle.dumps(_feeds(state, model, request, inputs, dims)))
        options = [*options_of(request), "--feeds", str(given)]
        found = measure(state, model, options, contenders, processes, rounds)
    if html:
        from tenonnx_bench.memory_page import as_html

        write_text(html, as_html(model, found))
    if as_json:
        emit_json(_as_data(found))
    else:
        show(found)


def _feeds(
    state: State, model: str, request: Request, inputs: Sequence[str], dims: Sequence[str]
) -> dict[str, Any]:
    from tenonnx.cli.feeds import make_feeds, parse_dims

    graph = load_original(state, model, request).graph
    return make_feeds(graph, list(inputs) or ["random"], parse_dims(dims), 0)


def options_of(request: Request) -> list[str]:
    """Return the command-line options of a request."""
    options: Iterable[tuple[str, Sequence[str]]] = (
        ("--provider", request.providers),
        ("--disable-transform", request.without),
        ("--allow-root", request.roots),
        ("--level", [request.level.value]),
        ("--threads", [str(request.threads)]),
    )
    return [part for name, values in options for value in values for part in (name, value)]


def measure(
    state: State,
    model: str,
    options: Sequence[str],
    contenders: Sequence[str],
    processes: int,
    rounds: int,
) -> dict[str, Any]:
    """Return the median ``Course`` of every contender that could run the model.

    Contenders take turns. If there are several, the first turn of each is not counted: it brings
    the model's file into the page cache and kernels into theirs.
    """
    from tenonnx_bench.sampling import Course, follow

    plugins = [part for file in state.files for part in ("--plugin", file)]
    courses: dict[str, list[Course]] = {name: [] for name in contenders}
    uncounted = 1 if len(contenders) > 1 else 0
    with progress(rounds + uncounted) as tell:
        for number in range(rounds + uncounted):
            for name in list(courses):
                command = [OURS, *plugins, "memory", "--child", name, *options, "--", model]
                try:
                    course = follow(
                        command,
                        1 if number < uncounted else processes,
                        lambda doing, name=name, at=number: tell(f"{name}: {doing}", at),  # type: ignore[misc]
                    )
                except Fail as error:
                    if name == OURS:
                        raise
                    say("warning", f"{name} is left out: {error}")
                    del courses[name]
                    continue
                courses[name] += [course] if number >= uncounted else []
    return {name: _median(found) for name, found in courses.items()}


def _median(courses: list[Any]) -> Any:
    return sorted(courses, key=lambda course: course.peak.private)[len(courses) // 2]


def _as_data(found: dict[str, Any]) -> dict[str, Any]:
    contenders = {
        name: {
            "processes": course.processes,
            "peak": vars(course.peak),
            "steady": vars(course.steady),
            "proportional": course.proportional,
            "code": course.code,
            "load_seconds": course.loaded,
        }
        for name, course in found.items()
    }
    ours = contenders.pop(OURS)
    return {**ours, **found[OURS].told, **({"peer": contenders} if contenders else {})}


def show(found: dict[str, Any]) -> None:
    """Print the measurements."""
    lines(found[OURS].told["report"])
    for name, course in found.items():
        title("Processes" if len(found) == 1 else f"Processes of {name}")
        rows = []
        for row in course.processes:
            load, run = (
                {k: row[step][k] - row["base"][k] for k in row["base"]}
                for step in ("loaded", "run")
            )
            values = (load["private"], run["private"], run["proportional"], row["run"]["resident"])
            rows.append((row["pid"], *map(size, values)))
        header = ("pid", "private, loaded", "private, run", "share of all (PSS)", "resident in all")
        table(header, rows, right=header)
        peak, number = course.peak.private, len(rows)
        who = f"all {number} processes together" if number > 1 else "the process"
        lines(
            "",
            f"The model adds to {who}:",
            f"  {size(peak)} of private memory at the peak",
            f"  {size(course.proportional)} of memory after the runs, shared pages counted once",
            f"Before it was opened, private memory was {size(course.code)}.",
        )
