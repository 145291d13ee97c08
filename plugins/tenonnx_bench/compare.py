"""``tenonnx compare``: compares outputs, speed and memory with another runtime's."""

from __future__ import annotations

import enum
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenonnx import NotSupported
from tenonnx.cli import arguments
from tenonnx.cli.failures import Code
from tenonnx.cli.opening import Request, declared_dtypes, load_original
from tenonnx.cli.output import (
    count,
    emit_json,
    lines,
    note,
    progress,
    shape_text,
    size,
    table,
    title,
)
from tenonnx.cli.state import State, state_of
from tenonnx.planning.differences import Difference, differences
from tenonnx_bench.bench import (
    RUN_COLUMNS,
    as_data,
    limited,
    print_opening,
    run_cells,
    tell_unsettled,
)
from tenonnx_bench.memory import OURS, measure, options_of
from tenonnx_bench.peers import ONNXRUNTIME, OPENVINO, peer_opener, version

if TYPE_CHECKING:
    from tenonnx_bench.measure import Result

HELP = """Compares a model's outputs, speed and memory with another runtime's.

Both open the model and run it on the same inputs, which are random unless given.

Outputs: the largest absolute and relative difference of each output, and how many elements are
beyond the tolerance. An element may differ by ABSOLUTE + RELATIVE * |reference|:

\b
  float64   1e-9 + 1e-7 * |reference|
  float32   1e-4 + 1e-3 * |reference|
  float16   1e-2 + 1e-2 * |reference|
  bfloat16  5e-2 + 5e-2 * |reference|
  others    nothing

--atol and --rtol replace these for all outputs. A sequence or a map is one output, and is held to
the type that the model declares for its elements. Speed: both run until they get no faster, for
--settle seconds at most, and then take turns. Memory: each runs in a new process of its own.

Exit codes: 0 if all outputs are within the tolerance, 1 if one is not, 2 if the other runtime is
not installed, 4 if one of the two cannot run the model, 5 if a run fails.

\b
Examples:
  tenonnx compare model.onnx
  tenonnx compare model.onnx --with openvino --dim batch=8 --threads 1
  tenonnx compare model.onnx --input feeds.npz --rtol 1e-2 --json
"""


class Peer(enum.StrEnum):
    """Runtimes to compare with."""

    ONNXRUNTIME = ONNXRUNTIME
    OPENVINO = OPENVINO


def compare(
    context: typer.Context,
    model: arguments.Model,
    peer: Annotated[
        Peer, typer.Option("--with", help="The runtime to compare with.")
    ] = Peer.ONNXRUNTIME,
    inputs: arguments.Inputs = arguments.NO_VALUES,
    dims: arguments.Dims = arguments.NO_VALUES,
    seed: arguments.Seed = 0,
    rtol: Annotated[
        float | None,
        typer.Option(help="Allowed relative difference, for every type.", min=0),
    ] = None,
    atol: Annotated[
        float | None,
        typer.Option(help="Allowed absolute difference, for every type.", min=0),
    ] = None,
    repeat: arguments.Repeat = None,
    seconds: arguments.Seconds = 2.0,
    settle: arguments.Settle = 10.0,
    threads: arguments.Threads = 0,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Measure memory, too.")
    ] = True,
    providers: arguments.Providers = arguments.NO_VALUES,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    roots: arguments.Roots = arguments.NO_VALUES,
    as_json: arguments.Json = False,
) -> None:
    """Compare a model with another runtime."""
    from tenonnx.cli.feeds import make_feeds, parse_dims
    from tenonnx_bench.contender import session_opener
    from tenonnx_bench.measure import open_all, race, settle_all

    state, request = state_of(context), Request(providers, level, without, roots, threads)
    ours_opener = session_opener(state, request)  # it raises for names that it does not know
    openers = {peer.value: peer_opener(peer, threads), OURS: ours_opener}
    graph = load_original(state, model, request).graph
    feeds = make_feeds(graph, inputs or ["random"], parse_dims(dims), seed)
    with limited(threads), progress(1.0) as show:
        results = open_all(openers, model, feeds, show)
        _raise_first(results)
        settle_all(results, feeds, settle, 1, show)
        race(results, feeds, repeat=repeat, seconds=seconds, show=show)
    theirs, ours = results
    names = [value.name or "" for value in graph.outputs]
    declared = declared_dtypes(graph)
    apart = differences(names, ours.outputs, theirs.outputs, rtol, atol, declared)
    held = _memory_of_both(state, model, request, peer, feeds) if memory else {}
    report = {
        "model": model,
        "with": {"name": peer.value, "version": version(peer)},
        "providers": getattr(ours.run, "providers", dict)(),
        "threads": threads,
        "agrees": all(row.agrees for row in apart),
        "outputs": [_difference_data(row) for row in apart],
        "speed": as_data(results),
        "memory": {name: _memory_data(course) for name, course in held.items()},
    }
    if as_json:
        emit_json(report)
    else:
        _print(report)
    if not report["agrees"]:
        raise typer.Exit(Code.PROBLEM)


def _raise_first(results: Sequence[Result]) -> None:
    """Raise a contender's error, with its name.

    Raises:
        TenonnxError: One could not open or run the model.
    """
    for result in results:
        if result.error is not None:
            note(f"{result.name}:")
            raise result.error


def _memory_of_both(
    state: State, model: str, request: Request, peer: str, feeds: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the memory of both runtimes' processes; ``None`` if the system does not tell it."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "feeds")
        given.write_bytes(pickle.dumps(feeds))
        options = [*options_of(request), "--feeds", str(given)]
        try:
            return measure(state, model, options, (OURS, peer), 1, 1)
        except NotSupported as why:
            note(f"memory is not measured: {why}")
            return {}


def _difference_data(row: Difference) -> dict[str, Any]:
    return {
        "name": row.name,
        "dtype": row.dtype,
        "shape": list(row.shape),
        "absolute": row.absolute,
        "relative": row.relative,
        "allowed": vars(row.tolerance),
        "beyond": row.beyond,
        "problem": row.problem,
        "agrees": row.agrees,
    }


def _memory_data(course: Any) -> dict[str, int]:
    return {
        "peak_private_bytes": course.peak.private,
        "private_bytes": course.steady.private,
        "mapped_bytes": course.steady.mapped,
    }


def _print(report: dict[str, Any]) -> None:
    peer = report["with"]
    ran = ", ".join(f"{name} ({count(n, 'node')})" for name, n in report["providers"].items())
    lines(
        f"{report['model']}: tenonnx on {ran or 'nothing'}, beside {peer['name']} {peer['version']}"
    )
    title("Outputs")
    _print_outputs(report["outputs"])
    title("Opening")
    print_opening(report["speed"])
    title("Running")
    columns = RUN_COLUMNS[:-1]
    table(("", *columns), [run_cells(data) for data in report["speed"]], right=columns)
    tell_unsettled(report["speed"])
    if report["memory"]:
        title("Memory, each in a process of its own")
        header = ("private, at its peak", "private, after", "mapped files")
        rows = [(name, *map(size, held.values())) for name, held in report["memory"].items()]
        table(("", *header), rows, right=header)
    lines("", _verdict(report))


def _print_outputs(outputs: Sequence[dict[str, Any]]) -> None:
    rows = []
    for row in outputs:
        allowed = row["allowed"]
        exact = not any(allowed.values())
        rows.append(
            (
                row["name"],
                row["dtype"],
                shape_text(row["shape"]),
                _number(row["absolute"]),
                _number(row["relative"]),
                "none" if exact else f"{allowed['absolute']:g} + {allowed['relative']:g}·|y|",
                "yes" if row["agrees"] else f"no: {row['problem'] or _beyond(row)}",
            )
        )
    header = ("output", "dtype", "shape", "absolute", "relative", "allowed", "agrees")
    table(header, rows, ("absolute", "relative"), ("allowed", "dtype", "shape"))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _beyond(row: dict[str, Any]) -> str:
    return f"{count(row['beyond'], 'element')} beyond"


def _verdict(report: dict[str, Any]) -> str:
    peer = report["with"]["name"]
    theirs, ours = report["speed"]
    outputs = "the outputs agree" if report["agrees"] else "the outputs DIFFER"
    said = f"{outputs}; tenonnx takes {ours['median'] / theirs['median']:.2f} of {peer}'s time"
    if memory := report["memory"]:
        mine, other = memory[OURS], memory.get(peer)
        if other is not None:
            bytes_of = "peak_private_bytes"
            said += (
                f", and {size(mine[bytes_of])} of private memory instead of {size(other[bytes_of])}"
            )
    return said
