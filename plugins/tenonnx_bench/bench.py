"""``tenonnx bench``: providers against each other, and against onnxruntime."""

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
from tenonnx.cli.output import duration, emit_json, lines, note, progress, size, table
from tenonnx.cli.state import State, state_of

if TYPE_CHECKING:
    from tenonnx_bench.measure import Result

SHOWN_SECONDS = 0.1
"""What compiling takes at least that is told."""

HELP = """Measures providers against each other on the same inputs.

They run in turn. Each --provider is a contender of its own; "onnxruntime" is one too where it
is installed, with the option provider=CUDAExecutionProvider and the like.

Ratios are of medians, to the first contender's: 2.00 takes twice as long. Private memory is what
opening the model and the first run added to the process; tenonnx's contenders share one set of
weights. The last column is the greatest difference from the first contender's outputs.
Inputs are random unless given.

\b
Examples:
  tenonnx bench model.onnx --provider cpu --provider onnxruntime
  tenonnx bench model.onnx --all-providers
  tenonnx bench model.onnx --dim batch=32 --threads 4 --seconds 5
  tenonnx bench model.onnx --input feeds.npz --repeat 100 --json
"""


def bench(
    context: typer.Context,
    model: arguments.Model,
    providers: arguments.Contenders = arguments.NOTHING,
    inputs: arguments.Inputs = arguments.NOTHING,
    dims: arguments.Dims = arguments.NOTHING,
    seed: arguments.Seed = 0,
    all_providers: Annotated[
        bool,
        typer.Option(
            "--all-providers",
            help="Measure every provider that is usable, each with the CPU's behind it.",
        ),
    ] = False,
    repeat: Annotated[
        int | None, typer.Option(help="Measured runs of each contender.", min=1)
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Time for each contender, without --repeat.", min=0.001)
    ] = 2.0,
    warmup: Annotated[int, typer.Option(help="Runs that do not count.", min=0)] = 3,
    threads: Annotated[
        int, typer.Option(help="Threads inside kernels; 0 leaves it to them.", min=0)
    ] = 0,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NOTHING,
    roots: arguments.Roots = arguments.NOTHING,
    as_json: arguments.Json = False,
) -> None:
    """Opens a model for every contender and runs them in turn."""
    from tenonnx.cli.feeds import make_feeds, parse_dims
    from tenonnx_bench.measure import open_all, race

    state = state_of(context)
    request = Request((), level, without, roots, threads)
    openers = _openers(state, providers, request, every=all_providers)
    original = load_original(state, model, request)
    feeds = make_feeds(original.graph, inputs or ["random"], parse_dims(dims), seed)
    with _limited(threads), progress(1.0) as show:
        results = open_all(openers, model, feeds, show)
        race(results, feeds, warmup=warmup, repeat=repeat, seconds=seconds, show=show)
    if as_json:
        emit_json({"model": model, "threads": threads, "results": _as_data(results)})
    else:
        _print(results)
    _exit(results)


def _openers(
    state: State, names: Sequence[str], request: Request, *, every: bool
) -> dict[str, Any]:
    from tenonnx_bench.contender import FALLBACK, PEER, is_peer_here, opener

    behind = (FALLBACK,) if every else ()
    if not names or every:
        usable = [p for p in usable_providers(state) if every or p.unasked]
        others = [p.aliases[0] if p.aliases else p.name for p in usable]
        given = [name.partition(":")[0] for name in names]
        names = [*names, *(name for name in others if name not in given)]
        names += [PEER] if is_peer_here() and PEER not in given else []
    return {name: opener(state, name, request, behind) for name in names}


@contextlib.contextmanager
def _limited(threads: int) -> Iterator[None]:
    """Holds numpy's BLAS to a number of threads; it is no part of any provider's options."""
    if not threads:
        yield
    elif importlib.util.find_spec("threadpoolctl") is None:
        note("threadpoolctl is not installed: numpy's BLAS takes as many threads as it likes")
        yield
    else:
        with importlib.import_module("threadpoolctl").threadpool_limits(threads):
            yield


def _as_data(results: Sequence[Result]) -> list[dict[str, Any]]:
    base = _base(results)
    return [
        {
            "provider": result.name,
            "load_seconds": result.load_seconds,
            "compile_seconds": result.compile_seconds,
            "first_seconds": result.first_seconds,
            "runs": len(result.seconds),
            **result.statistics(),
            "ratio": result.statistics()["median"] / base if result.seconds and base else None,
            "private_bytes": result.private_bytes,
            "difference": result.difference,
            "error": str(result.error) if result.error else None,
        }
        for result in results
    ]


def _base(results: Sequence[Result]) -> float | None:
    """Returns what ratios are relative to: the median of the first contender that ran."""
    return next((result.statistics()["median"] for result in results if result.seconds), None)


def _print(results: Sequence[Result]) -> None:
    rows = []
    for data in _as_data([result for result in results if not result.error]):
        times = [data.get(k) for k in ("load_seconds", "first_seconds", "min", "median", "p90")]
        rows.append(
            (
                data["provider"],
                *map(duration, times),
                "" if data["ratio"] is None else f"{data['ratio']:.2f}",
                "" if data["private_bytes"] is None else size(data["private_bytes"]),
                "" if data["difference"] is None else f"{data['difference']:.2g}",
            )
        )
    columns = ("load", "first", "min", "median", "p90", "ratio", "private", "differs")
    table(("provider", *columns), rows, right=columns)
    runs = max((len(result.seconds) for result in results), default=0)
    if runs:
        lines("", f"{runs} runs each, in turn")
    for result in results:
        if result.compile_seconds > SHOWN_SECONDS:
            took = duration(result.compile_seconds)
            lines(f"{result.name}: kernels were compiled in {took}, which is part of no time above")


def _exit(results: Sequence[Result]) -> None:
    """Explains what kept contenders out of the race; the first one's code is the command's."""
    failed = [(result.name, result.error) for result in results if result.error]
    for name, error in failed:
        note(f"{name}:")
        explain(error if isinstance(error, TenonnxError) else Fail(str(error)))
    if failed:
        error = failed[0][1]
        raise typer.Exit(code_of(error) if isinstance(error, TenonnxError) else Code.RUN)
