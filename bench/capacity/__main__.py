"""``python -m bench capacity`` computes the tables of docs/capacity.md.

What ``--ray`` measures is kept among the results until it is measured again.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from bench.capacity import report
from bench.capacity.plan import Model, Node, fit
from bench.capacity.simulation import Cluster, Scaling, Times
from bench.machine import joined, machine
from bench.options import parser
from bench.picture import draw

NODE = Node(cores=16, memory=60 << 10)

# MiB of a replica without a model, and more with a matrix of 134 MB: tests measure it.
SERVERS = {
    "Ray Serve": (112, 12),
    "kserve": (91, 8),
    "MLServer": (87, 8),
    "FastAPI under uvicorn": (39, 9),
}

# MiB that the same matrix takes in each worker of onnxruntime's.
COPIED = 237

# Of Ray's replicas, as measured on two busy cores; a model of 1 GB from a store of 200 MB/s.
TIMES = Times(start=6.7, fetch=5, open=0.3, run=0.05, route=0.007)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table as documents have it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replicas() -> list[dict[str, Any]]:
    """Return how many replicas of one thread memory allows, mapped and copied."""
    small, rows = Node(16, 4 << 10), list[dict[str, Any]]()
    for name, (empty, more) in SERVERS.items():
        for node, count, models in ((NODE, 1, "one model"), (small, 10, "ten models")):
            mapped, copied = (
                fit(node, Model(shared * count, own * count), empty=empty).by_memory
                for shared, own in ((128, more), (0, COPIED))
            )
            told = {"server": name, "gib": int(node.memory) >> 10, "models": models}
            rows.append(told | {"mapped": mapped, "copied": copied})
    return rows


def starts() -> list[dict[str, Any]]:
    """Return when all replicas of a cluster are ready, by who fetches the model."""
    rows = list[dict[str, Any]]()
    for nodes, each in ((1, 1), (1, 8), (4, 8)):
        once = Cluster([each] * nodes, TIMES, Scaling(nodes * each, nodes * each)).until(600)
        # Each for itself: the node's share of the store is divided among its replicas.
        apart = TIMES.start + TIMES.fetch * each + TIMES.open
        told = {"nodes": nodes, "each": each, "once": once.ready[-1], "apart": apart}
        rows.append(told | {"fetched": sum(once.fetches)})
    return rows


def tables(fits: list[dict[str, Any]], ready: list[dict[str, Any]]) -> str:
    """Return the tables of the document."""
    rows = [
        [one["server"], *(str(each[key]) for each in (one, ten) for key in ("mapped", "copied"))]
        for one, ten in zip(fits[::2], fits[1::2], strict=True)
    ]
    head = ["server", "60 GiB, mapped", "60 GiB, copied"]
    first = table([*head, "4 GiB, ten models, mapped", "4 GiB, ten models, copied"], rows)
    rows = [
        [
            f"{one['nodes']} x {one['each']}",
            f"{one['once']:.1f} s",
            f"{one['fetched']} GB",
            f"{one['apart']:.1f} s",
            f"{one['nodes'] * one['each']} GB",
        ]
        for one in ready
    ]
    head = ["nodes x replicas", "once per node: ready", "fetched"]
    second = table([*head, "each for itself: ready", "fetched"], rows)
    return "\n\n".join((first, second, burst()))


def burst() -> str:
    """Return what a sudden load meets: 16 clients where one replica was enough."""
    rows = []
    for delay in (30.0, 5.0, 0.0):
        cluster = Cluster([8, 8], TIMES, Scaling(1, 8, target=2, interval=1, delay=delay))
        cluster.until(30)
        cluster.closed(16)
        result = cluster.until(150)
        before = result.throughput(31, 35)
        after = result.throughput(100, 150)
        last = max(result.ready) - 30
        rows.append([f"{delay:.0f} s", f"{before:.0f}/s", f"{last:.0f} s", f"{after:.0f}/s"])
    return table(["`upscale_delay_s`", "at first", "8 replicas after", "then"], rows)


def of_ray() -> tuple[str, list[dict[str, Any]]]:
    """Return what two local nodes of Ray do, beside the simulation, as a table and as rows."""
    import sys

    import numpy as np
    import onnx
    from onnx import numpy_helper, parser

    from bench.capacity.ray_nodes import as_rows, as_table, compared, nodes, scaled

    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "store"
        store.mkdir()
        model = parser.parse_model(
            """<ir_version: 10, opset_import: ["": 21]>
            g (float[n, 64] x) => (float[n, 64] y) { y = MatMul(x, W) }"""
        )
        model.graph.initializer.append(numpy_helper.from_array(np.eye(64, dtype=np.float32), "W"))
        onnx.save(model, store / "model.onnx")
        with nodes([path for path in sys.path if path], Path(name) / "cache") as serve:
            times, *pair = compared(serve, store, Path(name) / "nodes")
            scaling = scaled(serve, store, Path(name) / "scaled", times)
    rows = as_rows(pair, scaling)
    return as_table(times, rows), rows


def main(arguments: list[str] | None = None) -> int:
    """Print the tables, and save them for the page."""
    made = parser("capacity", __doc__, ())
    made.add_argument("--ray", action="store_true", help="compare with two local nodes of Ray")
    parsed = made.parse_args(arguments)
    path, about = parsed.output / "capacity.json", machine()
    before = json.loads(path.read_text("utf-8")) if path.exists() else {}
    told = {"replicas": replicas(), "starts": starts(), "ray": before.get("ray", [])}
    if parsed.ray:
        text, told["ray"] = of_ray()
    else:
        text = tables(told["replicas"], told["starts"])
    if told["ray"] and not parsed.ray:
        about = joined(about, before["machine"])
    print(text)
    parsed.output.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": about} | told, indent=1), "utf-8")
    path.with_suffix(".md").write_text(tables(told["replicas"], told["starts"]) + "\n", "utf-8")
    draw(path.with_suffix(".png"), report.read(path), "How much fits", "the other")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
