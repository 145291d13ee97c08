"""``python -m bench serve [ROW ...]`` asks servers as fast as they answer, in turns.

``http`` and ``grpc`` are of a model that adds sixteen bytes to themselves: what a server itself
takes, beside one that checks nothing and, with ``--kserve PYTHON``, KServe's in an environment that
has it. ``batch`` is of products of matrices, with and without joining requests.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bench.machine import machine, tell
from bench.options import parser
from bench.serve import contenders
from bench.serve.contenders import Contender
from bench.serve.load import Load, ask

WIDTH, LAYERS = 1024, 6
ROWS = {
    "http": "a trivial model, binary tensors",
    "grpc": "a trivial model",
    "batch": f"{LAYERS} products with {WIDTH} x {WIDTH}, joined and not",
}


def trivial(path: Path) -> Path:
    """Writes a model that adds its input to itself."""
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[n, 4] x) => (float[n, 4] y) { y = Add(x, x) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def products(path: Path) -> Path:
    """Writes a model of products of matrices, one after the other."""
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
    """Returns what clients met at each server in each round, the servers taking turns."""
    x = np.ones((1, width), np.float32)
    for server in servers:  # what the first requests do is done once
        ask(kind, server.ports[kind], clients, seconds / 2, x)
    found: dict[str, list[Load]] = {server.name: [] for server in servers}
    for turn in range(rounds):
        for server in servers if turn % 2 else reversed(servers):
            found[server.name].append(ask(kind, server.ports[kind], clients, seconds, x))
    return found


def describe(row: str, clients: int, found: dict[str, list[Load]]) -> list[dict[str, object]]:
    """Returns a line of the table for each server; ratios are medians over rounds."""
    first = next(iter(found.values()))
    lines = []
    for name, loads in found.items():
        ratios = [mine.rate / other.rate for mine, other in zip(first, loads, strict=True)]
        middle = {key: statistics.median(getattr(one, key) for one in loads) for key in LOAD}
        lines.append(
            {"row": row, "clients": clients, "server": name, "rounds": len(loads)}
            | middle
            | {"ratio": statistics.median(ratios)}
        )
        rate, p50, p99 = middle["rate"], middle["p50"] * 1e3, middle["p99"] * 1e3
        tell(
            f"{row:6} {clients:2} clients  {name:20} {rate:7.0f}/s  p50 {p50:6.2f} ms  "
            f"p99 {p99:6.2f} ms  {next(iter(found))} : it {lines[-1]['ratio']:.2f}"
        )
    return lines


LOAD = ("rate", "p50", "p99")


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if all servers answered."""
    made = parser("serve", __doc__, ROWS)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    made.add_argument("--kserve", default="", metavar="PYTHON")
    parsed = made.parse_args(arguments)
    how = parsed.rounds, parsed.seconds
    lines: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, contextlib.ExitStack() as stack:
        asked = parsed.names or list(ROWS)
        if set(asked) & {"http", "grpc"}:
            model = trivial(Path(folder) / "m.onnx")
            starts = [contenders.tenonnx(model), contenders.bare(model)]
            if parsed.kserve:
                starts.append(contenders.kserve(parsed.kserve))
            with contextlib.ExitStack() as running:
                servers = [running.enter_context(start) for start in starts]
                for kind in ("http", "grpc"):
                    for clients in (1, 4) if kind in asked else ():
                        lines += describe(kind, clients, measure(kind, servers, clients, *how, 4))
        if "batch" in asked:
            model = products(Path(folder) / "m.onnx")
            pair = [contenders.tenonnx(model, "--batch", "16"), contenders.tenonnx(model)]
            servers = [stack.enter_context(start) for start in pair]
            lines += describe("batch", 16, measure("http", servers, 16, *how, WIDTH))
    parsed.output.mkdir(parents=True, exist_ok=True)
    whole = {"about": {"machine": machine()}, "rows": lines}
    (parsed.output / "serve.json").write_text(json.dumps(whole, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
