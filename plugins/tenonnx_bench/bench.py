"""``tenonnx bench``: compares providers with each other and with onnxruntime."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenonnx import Fail, TenonnxError
from tenonnx.cli import arguments
from tenonnx.cli.failures import Code, code_of, explain
from tenonnx.cli.opening import Request, load_original, usable_providers
from tenonnx.cli.output import duration, emit_json, lines, note, progress, table
from tenonnx.cli.state import State, state_of

if TYPE_CHECKING:
    from tenonnx_bench.measure import Result

HELP = """Measures providers against each other on the same inputs.

Each --provider is one contender. "onnxruntime" is one too, if it is installed, and
onnxruntime:provider=CUDAExecutionProvider chooses its provider. Every contender runs until it gets
no faster, for --settle seconds at most. Then they take turns.

The first table shows the opening of the model: "load", and "first", the first run. The second
table shows the runs. "ratio"
compares p50, the median, with the first contender's: 2.00 takes twice as long. "differs" is the
largest difference from the first contender's outputs. Inputs are random unless given.
`tenonnx memory` and `tenonnx compare` measure memory, in separate processes.

\b
Examples:
  tenonnx bench model.onnx --provider cpu --provider onnxruntime
  tenonnx bench model.onnx --all-providers
  tenonnx bench model.onnx --dim batch=32 --threads 4 --seconds 5
  tenonnx bench model.onnx --input feeds.npz --repeat 100 --json
"""

OPENING_COLUMNS = ("load", "first")
RUN_COLUMNS = ("min", "p50", "p99", "runs/s", "ratio", "differs")


def bench(
    context: typer.Context,
    model: arguments.Model,
    providers: arguments.Contenders = arguments.NO_VALUES,
    inputs: arguments.Inputs = arguments.NO_VALUES,
    dims: arguments.Dims = arguments.NO_VALUES,
    seed: arguments.Seed = 0,
    all_providers: Annotated[
        bool,
        typer.Option(
            "--all-providers",
            help="Measure every usable provider; the CPU provider runs nodes that it declines.",
        ),
    ] = False,
    repeat: arguments.Repeat = None,
    seconds: arguments.Seconds = 2.0,
    warmup: arguments.WarmUp = 3,
    settle: arguments.Settle = 10.0,
    threads: arguments.Threads = 0,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    roots: arguments.Roots = arguments.NO_VALUES,
    as_json: arguments.Json = False,
) -> None:
    """Open a model for every contender and run them in turn."""
    from tenonnx.cli.feeds import make_feeds, parse_dims
    from tenonnx_bench.measure import open_all, race, settle_all

    state = state_of(context)
    request = Request((), level, without, roots, threads)
    openers = _openers(state, providers, request, every=all_providers)
    original = load_original(state, model, request)
    feeds = make_feeds(original.graph, inputs or ["random"], parse_dims(dims), seed)
    with limited(threads), progress(1.0) as show:
        results = open_all(openers, model, feeds, show)
        settle_all(results, feeds, settle, warmup, show)
        race(results, feeds, repeat=repeat, seconds=seconds, show=show)
    if as_json:
        emit_json({"model": model, "threads": threads, "results": as_data(results)})
    else:
        _print(results)
    _exit(results)


def _openers(
    state: State, names: Sequence[str], request: Request, *, every: bool
) -> dict[str, Any]:
    from tenonnx_bench.contender import FALLBACK, PEER, opener
    from tenonnx_bench.peers import is_installed

    behind = (FALLBACK,) if every else ()
    if not names or every:
        usable = [p for p in usable_providers(state) if every or p.unasked]
        others = [p.aliases[0] if p.aliases else p.name for p in usable]
        given = [name.partition(":")[0] for name in names]
        names = [*names, *(name for name in others if name not in given)]
        names += [PEER] if is_installed(PEER) and PEER not in given else []
    return {name: opener(state, name, request, behind) for name in names}


@contextlib.contextmanager
def limited(threads: int) -> Iterator[None]:
    """Limit numpy's BLAS to a number of threads; providers have no option for that."""
    if not threads:
        yield
    elif importlib.util.find_spec("threadpoolctl") is None:
        note("threadpoolctl is not installed: numpy's BLAS chooses its own number of threads")
        yield
    else:
        with importlib.import_module("threadpoolctl").threadpool_limits(threads):
            yield


def as_data(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the contenders' measurements as JSON data."""
    base = next((result.statistics()["median"] for result in results if result.seconds), None)
    return [
        {
            "provider": result.name,
            "load_seconds": result.load_seconds,
            "first_seconds": result.first_seconds,
            "settled": result.settling.settled if result.settling else None,
            "settle_seconds": result.settling.seconds if result.settling else None,
            "runs": len(result.seconds),
            **result.statistics(),
            "ratio": result.statistics()["median"] / base if result.seconds and base else None,
            "difference": result.difference,
            "error": str(result.error) if result.error else None,
        }
        for result in results
    ]


def _print(results: Sequence[Result]) -> None:
    told = as_data([result for result in results if not result.error])
    print_opening(told)
    lines("")
    rows = [
        (*run_cells(data), "" if data["difference"] is None else f"{data['difference']:.2g}")
        for data in told
    ]
    table(("provider", *RUN_COLUMNS), rows, right=RUN_COLUMNS)
    if runs := max((len(result.seconds) for result in results), default=0):
        lines("", f"{runs} runs each, in turn")
    tell_unsettled(told)


def print_opening(told: Sequence[dict[str, Any]]) -> None:
    """Print the times to open the model and run it once."""
    rows = [
        (
            data["provider"],
            duration(data["load_seconds"]),
            duration(data["first_seconds"]),
        )
        for data in told
    ]
    table(("provider", *OPENING_COLUMNS), rows, right=OPENING_COLUMNS)


def run_cells(data: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a contender's runs: its name, ``min`` to ``ratio``."""
    times = [duration(data.get(key)) for key in ("min", "median", "p99")]
    if data["ratio"] is None:
        return data["provider"], *times, "", ""
    return data["provider"], *times, rate(data["runs_per_second"]), f"{data['ratio']:.2f}"


def rate(number: float) -> str:
    """Return a rate for people: ``15,337`` or ``2.41``."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def tell_unsettled(told: Sequence[dict[str, Any]]) -> None:
    """Report contenders that still got faster when the measured runs began."""
    for data in told:
        if data["settled"] is False:
            lines(
                f"{data['provider']} still got faster after {duration(data['settle_seconds'])} "
                "(--settle allows more)"
            )


def _exit(results: Sequence[Result]) -> None:
    """Report the contenders that failed; the first one's exit code is the command's."""
    failed = [(result.name, result.error) for result in results if result.error]
    for name, error in failed:
        note(f"{name}:")
        explain(error if isinstance(error, TenonnxError) else Fail(str(error)))
    if failed:
        error = failed[0][1]
        raise typer.Exit(code_of(error) if isinstance(error, TenonnxError) else Code.RUN)
