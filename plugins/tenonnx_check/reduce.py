"""``tenonnx reduce``: the smallest part of a model that still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenonnx.cli import arguments
from tenonnx.cli.failures import Code
from tenonnx.cli.opening import Request
from tenonnx.cli.output import check_targets, count, lines, note, progress, write_text
from tenonnx.cli.results import save
from tenonnx.cli.state import state_of
from tenonnx_check.child import Child, folder_of
from tenonnx_check.outcome import Kind, Outcome
from tenonnx_check.parts import declare
from tenonnx_check.script import script, write_model
from tenonnx_check.shrinking import SMALL_SIZES, cut, fewest, sizes_of
from tenonnx_check.trial import (
    Absolute,
    Against,
    NodeTolerances,
    Relative,
    RunSeconds,
    Trial,
    settings,
    store,
    trial,
)

if TYPE_CHECKING:
    import onnx_ir as ir

HELP = """Writes the smallest model that still fails as MODEL does.

A model fails if it raises, if its process crashes or hangs, or if an output differs from the
reference's. Nodes are left out, then outputs; then the sizes of axes are cut. What is written
fails in the same way: by the same exception at the same line, by the same signal, or by other
values.

\b
OUT.onnx  the model
OUT.npz   its inputs
OUT.py    a few lines of Python that show the failure

\b
Examples:
  tenonnx reduce model.onnx -p vec -p cpu
  tenonnx reduce model.onnx --against onnxruntime -o smallest.onnx
  tenonnx reduce model.onnx --level extended --seconds 300
"""

Fails = Callable[[Sequence[int]], bool]


class Budget:
    """The time for a reduction: when it is over, nothing fails any more."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.over = False

    def left(self) -> bool:
        """Return whether there is time left."""
        self.over = self.over or time.monotonic() > self._end
        return not self.over


def reduce(
    context: typer.Context,
    model: arguments.Model,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT.onnx", help="The model to write.")
    ] = "reduced.onnx",
    providers: arguments.Providers = arguments.NO_VALUES,
    against: Against = "cpu",
    inputs: arguments.Inputs = arguments.NO_VALUES,
    dims: arguments.Dims = arguments.NO_VALUES,
    seed: arguments.Seed = 0,
    rtol: Relative = None,
    atol: Absolute = None,
    node_tolerance: NodeTolerances = arguments.NO_VALUES,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    roots: arguments.Roots = arguments.NO_VALUES,
    threads: arguments.Threads = 0,
    run_seconds: RunSeconds = 60.0,
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Time for the whole reduction.")
    ] = 120.0,
    force: arguments.Force = False,
) -> None:
    """Reduce a failing model."""
    from tenonnx.cli.feeds import make_feeds, parse_dims

    state, request = state_of(context), Request(providers, level, without, roots, threads)
    target = Path(output).with_suffix(".onnx")
    files = [str(target.with_suffix(suffix)) for suffix in (".onnx", ".npz", ".py")]
    check_targets(*files, force=force)
    how = settings(state, request, against, (rtol, atol, node_tolerance), run_seconds)

    def feeds_of(graph: Any) -> dict[str, Any]:
        return make_feeds(graph, inputs or ["random"], parse_dims(dims), seed)

    budget = Budget(seconds)
    with progress(1.0) as show, trial(how, model, feeds_of, show) as (tried, reference):
        show("the whole model runs", 0.0)
        outcome = tried.whole_model()
        if outcome.kind is Kind.FINE:
            lines(f"{model}: nothing fails; there is nothing to reduce")
            return
        note(f"{model} {outcome.kind}: {outcome.text}")
        numbers, wanted = _fewer_nodes(tried, outcome, budget, show)
        small, fed = _as_model(tried, numbers, wanted)
        show("sizes are cut", 0.9)
        small, fed, outcome = _smaller(small, fed, (reference, tried.subject), budget)
    write_model(small, files[0])
    save(fed, Path(files[1]))
    names = [value.name or "" for value in small.graph.outputs]
    write_text(files[2], script(outcome, files[0], fed, names, how))
    nodes = count(len(list(small.graph)), "node")
    lines(f"{nodes} of {len(tried.whole.nodes)}: {', '.join(node.op_type for node in small.graph)}")
    lines(f"{outcome.kind}: {outcome.text}")
    if budget.over:
        lines(f"{seconds:g} s are over: it may get smaller with more --seconds")
    raise typer.Exit(Code.PROBLEM)


def _fewer_nodes(
    tried: Trial, outcome: Outcome, budget: Budget, show: Callable[[str, float], None]
) -> tuple[list[int], Sequence[str] | None]:
    """Return the fewest nodes, and the fewest outputs, with which the model fails alike."""
    total = len(tried.whole.nodes)
    known: dict[tuple[int, ...], bool] = {}
    fewest_yet = total

    def fails(numbers: Sequence[int]) -> bool:
        nonlocal fewest_yet
        key = tuple(int(number) for number in numbers)
        if key not in known:
            known[key] = budget.left() and tried.ask(key).is_like(outcome)
            if known[key]:
                fewest_yet = min(fewest_yet, len(key))
            show(f"{fewest_yet} of {total} nodes fail", 0.9 * (1 - fewest_yet / total))
        return known[key]

    numbers = fewest(range(total), fails)
    wanted: Sequence[str] | None = None
    if outcome.kind is Kind.DIFFERS:
        differing = tried.ask(numbers).outputs
        for name in differing[:1]:
            if tried.ask(numbers, wanted=[name]).is_like(outcome):
                wanted = [name]
    return numbers, wanted


def _as_model(
    tried: Trial, numbers: Sequence[int], wanted: Sequence[str] | None
) -> tuple[ir.Model, dict[str, Any]]:
    """Return some nodes as a model with its inputs."""
    part, values = tried.whole.part(numbers, wanted), tried.values()
    feeds = {name: values[value] for name, value in part.feeds.items()}
    declare(part.model, feeds)
    return part.model, feeds


def _smaller(
    model: ir.Model,
    feeds: dict[str, Any],
    children: tuple[Child, Child],
    budget: Budget,
) -> tuple[ir.Model, dict[str, Any], Outcome]:
    """Return the model with the smallest sizes with which it fails alike."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tenonnx-reduce-") as where:

        def ends(some: ir.Model, fed: dict[str, Any]) -> Outcome | None:
            folder = folder_of(fed, where)
            declare(some, fed)
            path = str(Path(folder, "model.onnx"))
            write_model(some, path)
            if store(children[0], path, folder).kind is not Kind.FINE:
                return None
            return children[1].ask(path, folder, numbers=list(range(len(list(some.graph)))))

        outcome = ends(model, feeds)
        assert outcome is not None, "the reference ran it as a part of the whole"
        for size in sizes_of(model, feeds.values()):
            for smaller in (each for each in SMALL_SIZES if each < size):
                if not budget.left():
                    return model, feeds, outcome
                candidate, fed = cut(model, feeds, size, smaller)
                found = ends(candidate, fed)
                if found is not None and found.is_like(outcome):
                    model, feeds, outcome = candidate, fed, found
                    break
    return model, feeds, outcome
