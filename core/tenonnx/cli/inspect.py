"""``tenonnx inspect``: a model's operators, their providers, and its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenonnx.cli import arguments
from tenonnx.cli.failures import code_of, explain
from tenonnx.cli.memory import growth, private_bytes
from tenonnx.cli.model_tables import print_operators, print_placement
from tenonnx.cli.opening import Request, load_original, open_session
from tenonnx.cli.output import count, duration, emit_json, lines, shape_text, size, table, title
from tenonnx.cli.state import State, state_of
from tenonnx.errors import EPFail, NotSupported, TenonnxError

if TYPE_CHECKING:
    from tenonnx.session import InferenceSession

HELP = """Shows a model: operators, who runs which node, and where its weights are.

Nothing is run. If no provider can run the model, the command shows what is missing and exits with
code 4.

\b
Examples:
  tenonnx inspect model.onnx
  tenonnx inspect model.onnx --provider cuda --provider cpu --nodes
  tenonnx inspect model.onnx --json | jq .operators
"""


def inspect(
    context: typer.Context,
    model: arguments.Model,
    providers: arguments.Providers = arguments.NO_VALUES,
    weights: Annotated[
        int, typer.Option(metavar="N", help="How many of the biggest weights to list.", min=0)
    ] = 10,
    nodes: Annotated[bool, typer.Option("--nodes", help="List every node, as it runs.")] = False,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    roots: arguments.Roots = arguments.NO_VALUES,
    as_json: arguments.Json = False,
) -> None:
    """Print all that can be said of a model without running it."""
    state = state_of(context)
    report, error = _gather(state, model, Request(providers, level, without, roots), nodes)
    if as_json:
        report["weights"]["biggest"] = report["weights"]["biggest"][:weights]
        emit_json(report)
    else:
        _print(report, weights)
    if error is not None:
        explain(error)
        raise typer.Exit(code_of(error))


def _gather(
    state: State, path: str, request: Request, nodes: bool
) -> tuple[dict[str, Any], TenonnxError | None]:
    """Return all that can be said, and what kept the model from being placed if anything did."""
    from tenonnx.cli import facts

    session: InferenceSession | None = None
    error: TenonnxError | None = None
    _warm_up(state, request)
    before = private_bytes()
    try:
        session, seconds = open_session(state, path, request)
    except (NotSupported, EPFail) as problem:
        error = problem
    added = growth(before, private_bytes())
    # After the measurement, to which the memory of a second graph would be added.
    original = load_original(state, path, request)
    report = {"model": path, **facts.of_model(original)}
    rows = facts.of_weights(original if session is None else session.model)
    report["weights"] = {
        "count": len(rows),
        "bytes": sum(row["bytes"] for row in rows),
        "biggest": rows,
    }
    if session is not None:
        report |= {"load_seconds": seconds, **facts.of_session(session, added)}
        if nodes:
            report["node_list"] = facts.of_nodes(session.placement)
    else:
        report["error"] = str(error)
    return report, error


def _warm_up(state: State, request: Request) -> None:
    """Load what a session needs for any model, so that the measurement shows the model alone."""
    import contextlib
    import warnings

    from tenonnx.cli.smoke import tiny_model

    with contextlib.suppress(TenonnxError), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the model's own session will say it
        open_session(state, tiny_model(), request)


def _print(report: dict[str, Any], weights: int) -> None:
    _print_model(report)
    _print_operators(report)
    if "transforms" in report:
        _print_loading(report)
        _print_transforms(report["transforms"])
        print_placement(report["placement"], every="node_list" in report)
        _print_kernels(report["kernels"])
    _print_weights(report["weights"], weights)
    if "memory" in report:
        _print_memory(report["memory"])
    if "node_list" in report:
        _print_nodes(report["node_list"])


def _print_model(report: dict[str, Any]) -> None:
    imports = ", ".join(f"{d} {v}" for d, v in report["opset_imports"].items())
    facts = [
        ("model", report["model"]),
        ("graph", report["graph"]),
        ("producer", report["producer"]),
        ("opsets", imports),
        ("IR version", report["ir_version"]),
        *((f"metadata {key}", value) for key, value in report["metadata"].items()),
    ]
    lines(*(f"{name + ':':<12}{value}" for name, value in facts if value))
    rows = [
        (kind, arg["name"], arg["type"], shape_text(arg["shape"]))
        for kind, key in (
            ("input", "inputs"),
            ("overridable", "overridable"),
            ("output", "outputs"),
        )
        for arg in report[key]
    ]
    lines("")
    table(("", "name", "type", "shape"), rows)


def _print_operators(report: dict[str, Any]) -> None:
    title(f"Operators: {count(report['nodes'], 'node')}")
    print_operators(report["operators"], report.get("operators_as_run", report["operators"]))
    if report["functions"]:
        title("Functions")
        functions = [(f["name"], f["nodes"]) for f in report["functions"]]
        table(("function", "nodes"), functions, right=("nodes",))


def _print_loading(report: dict[str, Any]) -> None:
    title(f"Loading: {duration(report['load_seconds'])}")
    rows = [(stage, duration(seconds)) for stage, seconds in report["load_times"].items()]
    table(("stage", "time"), rows, right=("time",))


def _print_transforms(transforms: list[dict[str, Any]]) -> None:
    title("Transforms")
    rows = [
        (t["name"], f"{t['nodes_before']} → {t['nodes_after']}", duration(t["seconds"]))
        for t in transforms
        if t["modified"]
    ]
    if rows:
        table(("transform", "nodes", "time"), rows, right=("time",))
    idle = [t["seconds"] for t in transforms if not t["modified"]]
    if idle:
        others = "others " if rows else ""
        lines(f"{len(idle)} {others}changed nothing, in {duration(sum(idle))}")
    if not transforms:
        lines("none ran")


def _print_kernels(kernels: dict[str, Any]) -> None:
    if kernels:
        title("Kernels")
        rows = [(name, kernel["state"], kernel["reason"]) for name, kernel in kernels.items()]
        table(("kernel", "state", "because"), rows)


def _print_weights(weights: dict[str, Any], most: int) -> None:
    title(f"Weights: {weights['count']}, {size(weights['bytes'])}")
    rows = [
        (
            ", ".join(row["names"]),
            row["dtype"],
            shape_text(row["shape"]),
            size(row["bytes"]),
            f"{row['kind']}: {row['storage']}+{row['offset']}",
        )
        for row in weights["biggest"][:most]
    ]
    table(("name", "dtype", "shape", "size", "where"), rows, right=("size",))
    if 0 < most < weights["count"]:
        lines(f"... and {weights['count'] - most} more (--weights N)")


def _print_memory(memory: dict[str, Any]) -> None:
    title("Memory")
    meanings = {
        "mapped": "of the model's files",
        "derived": "of side files that tenonnx made from weights",
        "resident": "of these files in this process's memory now",
        "private": "of weights in memory of this process alone",
        "device": "uploaded to devices",
        "added_private": "of private memory were added by loading, code not counted",
    }
    rows = [
        ("unknown" if memory[key] is None else size(memory[key]), meaning)
        for key, meaning in meanings.items()
    ]
    rows += [
        (size(device["used"]), f"of {size(device['size'])} on {device['id']} are allocated")
        for device in memory["devices"]
    ]
    table(("memory", ""), rows, right=("memory",))


def _print_nodes(nodes: list[dict[str, Any]]) -> None:
    title("Nodes")
    rows = [
        (
            index,
            node["operator"]
            if node["domain"] == "ai.onnx"
            else f"{node['domain']}::{node['operator']}",
            node["version"],
            node["name"],
            node["provider"],
            f"{', '.join(node['inputs'])} → {', '.join(node['outputs'])}",
        )
        for index, node in enumerate(nodes)
    ]
    table(
        ("#", "operator", "opset", "name", "provider", "reads → makes"), rows, right=("#", "opset")
    )
