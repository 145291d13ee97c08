"""``tenonnx run``: feed a model and look at what comes out."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenonnx.cli import arguments
from tenonnx.cli.opening import Request, graph_of, open_session
from tenonnx.cli.output import count, duration, emit_json, lines, progress, table
from tenonnx.cli.state import state_of
from tenonnx.cli.timing import timed

if TYPE_CHECKING:
    from tenonnx.session import InferenceSession

HELP = """Runs a model once or more and describes its outputs.

\b
Examples:
  tenonnx run model.onnx --input x=image.npy --output out.npz
  tenonnx run model.onnx --input feeds.npz --provider cuda --provider cpu
  tenonnx run model.onnx --input random --dim batch=8 --dim x.2=224 --repeat 100
  tenonnx run model.onnx --input random --threads 4
"""


def run(
    context: typer.Context,
    model: arguments.Model,
    inputs: arguments.Inputs = arguments.NO_VALUES,
    dims: arguments.Dims = arguments.NO_VALUES,
    seed: arguments.Seed = 0,
    providers: arguments.Providers = arguments.NO_VALUES,
    output: arguments.Output = "",
    threads: arguments.Threads = 0,
    repeat: Annotated[int, typer.Option(help="How many times to run.", min=1)] = 1,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    roots: arguments.Roots = arguments.NO_VALUES,
    as_json: arguments.Json = False,
) -> None:
    """Feed a model, run it, describe and save its outputs."""
    from tenonnx.cli.feeds import make_feeds, parse_dims
    from tenonnx.cli.results import describe_all, output_row, save

    sizes = parse_dims(dims)
    state, request = state_of(context), Request(providers, level, without, roots, threads)
    session, load_seconds = open_session(state, model, request, as_programs_do=True)
    feeds = make_feeds(graph_of(state, session, model, request), inputs, sizes, seed)
    values, seconds = _time(session, feeds, repeat)
    outputs = {arg.name: value for arg, value in zip(session.get_outputs(), values, strict=True)}
    described = describe_all(outputs)
    if not as_json:  # before anything can go wrong with the files
        table(("output", "dtype", "shape", "summary"), [output_row(d) for d in described])
    files = save(outputs, Path(output)) if output else []
    if as_json:
        report = {
            "model": model,
            "providers": session.get_providers(),
            "placement": session.placement.counts(),
            "load_seconds": load_seconds,
            "run_seconds": seconds,
            "outputs": described,
            "files": [str(path) for path in files],
        }
        emit_json(report)
        return
    lines("", f"loaded in {duration(load_seconds)}, {_summary(seconds)}", *_placed(session))
    if files:
        lines(f"written to {', '.join(map(str, files))}")


def _time(
    session: InferenceSession, feeds: dict[str, Any], repeat: int
) -> tuple[list[Any], list[float]]:
    seconds = []
    with progress(repeat if repeat > 1 else None) as show:
        for done in range(repeat):
            if repeat > 1:
                show(f"running {repeat} times", done)
            values, taken = timed(lambda: session.run(None, feeds))
            seconds.append(taken)
    return values, seconds


def _summary(seconds: list[float]) -> str:
    first = f"first run {duration(seconds[0])}"
    if len(seconds) == 1:
        return first
    rest = seconds[1:]
    median = statistics.median(rest)
    times = f"min {duration(min(rest))}, median {duration(median)}"
    return f"{first}, then {count(len(rest), 'run')}: {times}"


def _placed(session: InferenceSession) -> list[str]:
    counts = session.placement.counts()
    shown = ", ".join(f"{name} ({count(n, 'node')})" for name, n in counts.items())
    return [f"ran on {shown or 'nothing: the outputs are constants'}"]
