"""``python -m bench serve [ROW ...]`` asks servers as fast as they answer, in turns.

``http`` and ``grpc`` are of a model that adds sixteen bytes to themselves: what a server itself
takes, beside one that checks nothing and, with ``--kserve PYTHON``, KServe's in an environment that
has it. ``batch`` is of products of matrices, with and without joining requests. ``memory`` is what
eight workers hold of a matrix of 134 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bench.machine import machine, tell
from bench.options import parser
from bench.picture import draw
from bench.serve import contenders, report
from bench.serve.contenders import Contender
from bench.serve.load import Load, ask
from bench.serve.memory import held

WIDTH, LAYERS = 1024, 6
# Names the Python of KServe's environment, where `--kserve` does not.
VARIABLE = "BENCH_KSERVE"

Result = dict[str, Any]


def trivial(path: Path) -> Path:
    """Write a model that adds its input to itself."""
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[n, 4] x) => (float[n, 4] y) { y = Add(x, x) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def products(path: Path) -> Path:
    """Write a model of products of matrices, one after the other."""
    draw = np.random.default_rng(0)
    names = ["x", *(f"h{n}" for n in range(1, LAYERS)), "y"]
    nodes = [helper.make_node("MatMul", [names[n], f"w{n}"], [names[n + 1]]) for n in range(LAYERS)]
    weights = [
        numpy_helper.from_array(draw.standard_normal((WIDTH, WIDTH), np.float32) / 32, f"w{n}")
        for n in range(LAYERS)
    ]
    ends = [helper.make_tensor_value_info(name, 1, ["n", WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def measure(
    kind: str, servers: Sequence[Contender], clients: int, rounds: int, seconds: float, width: int
) -> dict[str, list[Load]]:
    """Return what clients met at each server in each round, the servers taking turns."""
    x = np.ones((1, width), np.float32)
    for server in servers:  # what the first requests do is done once
        ask(kind, server.ports[kind], clients, seconds / 2, x)
    found: dict[str, list[Load]] = {server.name: [] for server in servers}
    for turn in range(rounds):
        for server in servers if turn % 2 else reversed(servers):
            found[server.name].append(ask(kind, server.ports[kind], clients, seconds, x))
    return found


def describe(row: str, clients: int, found: dict[str, list[Load]]) -> list[Result]:
    """Return a line of the table for each server."""
    lines: list[Result] = []
    for name, loads in found.items():
        middle = {key: statistics.median(getattr(one, key) for one in loads) for key in LOAD}
        rates = [one.rate for one in loads]
        line = {"row": row, "clients": clients, "server": name, **middle, "rates": rates}
        lines.append(line)
        ratio = statistics.median(report.ratios(lines[0], line))
        rate, p50, p99 = middle["rate"], middle["p50"] * 1e3, middle["p99"] * 1e3
        tell(
            f"{row:6} {clients:2} clients  {name:20} {rate:7.0f}/s  p50 {p50:6.2f} ms  "
            f"p99 {p99:6.2f} ms  {next(iter(found))} : it {1 / ratio:.2f}"
        )
    return lines


LOAD = ("rate", "p50", "p99")


def requests(parsed: argparse.Namespace, kinds: Sequence[str], folder: Path) -> list[Result]:
    """Return what a trivial model's servers do."""
    how, lines = (parsed.rounds, parsed.seconds), list[Result]()
    model = trivial(folder / "trivial.onnx")
    starts = [contenders.tenonnx(model), contenders.bare(model)]
    starts += [contenders.kserve(parsed.kserve)] if parsed.kserve else []
    with contextlib.ExitStack() as running:
        servers = [running.enter_context(start) for start in starts]
        for kind in kinds:
            for clients in (1, 4):
                lines += describe(kind, clients, measure(kind, servers, clients, *how, 4))
    return lines


def joined(parsed: argparse.Namespace, folder: Path) -> list[Result]:
    """Return what joining requests does."""
    model = products(folder / "products.onnx")
    pair = [
        contenders.tenonnx(model, "--batch", "16"),
        contenders.tenonnx(model, name=report.APART),
    ]
    with contextlib.ExitStack() as running:
        servers = [running.enter_context(start) for start in pair]
        how = parsed.rounds, parsed.seconds
        return describe("batch", 16, measure("http", servers, 16, *how, WIDTH))


def workers(parsed: argparse.Namespace, folder: Path) -> list[Result]:
    """Return what workers hold of a matrix of 134 MB."""
    small, side = trivial(folder / "small.onnx"), 725 if parsed.quick else 5800
    found = held(contenders.tenonnx, folder, small, side, 2 if parsed.quick else 8)
    line = {"row": "memory", "server": report.MINE, **asdict(found), "more": found.more}
    tell(report.as_markdown([line]).strip().splitlines()[-1])
    return [line]


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if all servers answered and all bounds hold."""
    made = parser("serve", __doc__, report.ROWS)
    made.add_argument("--rounds", type=int, default=0, help="5 by default")
    made.add_argument("--seconds", type=float, default=0.0, help="of a turn, 2 by default")
    made.add_argument("--kserve", default=os.environ.get(VARIABLE, ""), metavar="PYTHON")
    made.add_argument("--quick", action="store_true", help="small models, numbers of no interest")
    parsed = made.parse_args(arguments)
    parsed.rounds = parsed.rounds or (1 if parsed.quick else 5)
    parsed.seconds = parsed.seconds or (0.2 if parsed.quick else 2.0)
    asked, about, lines = parsed.names or list(report.ROWS), machine(), list[Result]()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        if kinds := [kind for kind in ("http", "grpc") if kind in asked]:
            lines += requests(parsed, kinds, folder)
        if "batch" in asked:
            lines += joined(parsed, folder)
        if "memory" in asked:
            lines += workers(parsed, folder)
    parsed.output.mkdir(parents=True, exist_ok=True)
    path = parsed.output / f"serve{'-quick' * parsed.quick}.json"
    path.write_text(json.dumps({"machine": about, "rows": lines}, indent=1))
    path.with_suffix(".md").write_text(report.as_markdown(lines))
    draw(path.with_suffix(".png"), report.read(path), "Serving", "the other")
    told = [] if parsed.quick else report.broken(lines)
    for line in told:
        tell(f"a bound does not hold: {line}")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
