"""``tenonnx check``: which node of a model a provider computes wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenonnx.cli import arguments
from tenonnx.cli.failures import Code
from tenonnx.cli.opening import Request
from tenonnx.cli.output import count, emit_json, lines, progress, table, title
from tenonnx.cli.state import state_of
from tenonnx.errors import CheckFailed
from tenonnx_check.checking import Failure, described_inputs, failures
from tenonnx_check.outcome import Kind, Outcome
from tenonnx_check.trial import (
    Absolute,
    Against,
    NodeTolerances,
    Relative,
    RunSeconds,
    Trial,
    parse_tolerances,
    settings,
    trial,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = """Finds the nodes of a model that a provider computes wrongly.

A reference computes every value of the model. Then the whole model runs, and each node alone on the
reference's inputs: types, shapes and values of its outputs are compared. The first node that fails
is shown with its inputs. All of it runs in a process of its own, whose crash is a finding, too.

An element may differ as in `tenonnx compare`; --atol and --rtol replace the tolerances, and
--node-tolerance those of single nodes. If the
whole model fails and no node does alone, nodes fail together: the first step that is wrong as the
model runs is shown, as by SessionOptions(check=True), and `tenonnx reduce` finds which nodes.

Exit codes: 0 if nothing fails, 1 if something does.

\b
Examples:
  tenonnx check model.onnx -p vec -p cpu
  tenonnx check model.onnx --level none --against onnxruntime
  tenonnx check model.onnx -p cuda --input feeds.npz --rtol 1e-2 --json
  tenonnx check model.onnx -p npu --node-tolerance Softmax=1e-2 --node-tolerance "/head/*=0.1,1e-2"
"""


def check(
    context: typer.Context,
    model: arguments.Model,
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
    seconds: RunSeconds = 60.0,
    as_json: arguments.Json = False,
    child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
) -> None:
    """Compare a model and each of its nodes with a reference."""
    from tenonnx.cli.feeds import make_feeds, parse_dims

    state, request = state_of(context), Request(providers, level, without, roots, threads)
    if child:
        from tenonnx_check.worker import Worker, serve

        serve(Worker(state, request, (rtol, atol), parse_tolerances(node_tolerance)))
        return
    how = settings(state, request, against, (rtol, atol, node_tolerance), seconds)

    def feeds_of(graph: Any) -> dict[str, Any]:
        return make_feeds(graph, inputs or ["random"], parse_dims(dims), seed)

    with progress(1.0) as show, trial(how, model, feeds_of, show) as (tried, _):
        show("the whole model runs", 0.0)
        whole = tried.whole_model()
        number = len(tried.whole.nodes)
        found = list(
            failures(
                tried.whole,
                tried.ask,
                range(number),
                lambda done: show("every node runs alone", done / number),
            )
        )
        together = ""
        # Right alone and wrong together: a node that writes where another one reads, or a value
        # that is freed too early. Checking after every step finds where it happens.
        if whole.kind is Kind.DIFFERS and not found and against == "cpu":
            show("every step is checked", 1.0)
            outcome = tried.whole_model(checked=True)
            together = outcome.text if outcome.place.startswith(CheckFailed.__name__) else ""
        report = _report(tried, model, whole, found, together)
    if as_json:
        emit_json(report)
    else:
        _print(report)
    if whole.kind is not Kind.FINE or found:
        raise typer.Exit(Code.PROBLEM)


def _report(
    tried: Trial, model: str, whole: Outcome, found: Sequence[Failure], together: str
) -> dict[str, Any]:
    first = described_inputs(tried.whole, found[0].number, tried.values()) if found else []
    return {
        "model": model,
        "nodes": len(tried.whole.nodes),
        "whole": {"kind": whole.kind, "text": whole.text},
        "first_step": together,
        "failures": [
            {
                "number": each.number,
                "node": tried.whole.label(each.number),
                "kind": each.outcome.kind,
                "text": each.outcome.text,
            }
            for each in found
        ],
        "first_inputs": [
            dict(zip(("name", "dtype", "shape", "range"), row, strict=True)) for row in first
        ],
    }


def _print(report: dict[str, Any]) -> None:
    whole, found = report["whole"], report["failures"]
    lines(f"{report['model']}: {count(report['nodes'], 'node')}")
    ends = "agrees with the reference" if whole["kind"] == Kind.FINE else whole["text"]
    lines(f"the whole model: {ends}")
    if not found:
        alone = "every node alone agrees with the reference"
        together = "; nodes fail together: tenonnx reduce finds which"
        lines(alone + ("" if whole["kind"] == Kind.FINE else together))
        if report["first_step"]:
            lines(f"the first step that is wrong in the whole model: {report['first_step']}")
        return
    verb = "fails" if len(found) == 1 else "fail"
    title(f"{count(len(found), 'node')} of {report['nodes']} {verb} alone")
    table(("", "node", "failure"), [(f["number"], f["node"], f["text"]) for f in found], ("",))
    title(f"Inputs of the first, {found[0]['node']}")
    table(
        ("input", "dtype", "shape", "range"),
        [tuple(row.values()) for row in report["first_inputs"]],
    )
