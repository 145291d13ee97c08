"""``python -m bench capacity`` prints the tables of docs/capacity.md."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.capacity.plan import Model, Node, fit
from bench.capacity.simulation import Cluster, Scaling, Times

NODE = Node(cores=16, memory=60 << 10)

SERVERS = {
    "Ray Serve": (112, 12),
    "kserve": (91, 8),
    "MLServer": (87, 8),
    "FastAPI under uvicorn": (39, 9),
}
"""MiB of a replica without a model, and more with a matrix of 134 MB: measured by tests/engines."""

COPIED = 237
"""MiB that the same matrix takes in each worker of onnxruntime's."""

TIMES = Times(start=6.7, fetch=5, open=0.3, run=0.05, route=0.007)
"""Of Ray's replicas, as measured on two busy cores; a model of 1 GB from a store of 200 MB/s."""


def table(head: list[str], rows: list[list[str]]) -> str:
    """Returns a table as documents have it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replicas() -> str:
    """Returns how many replicas of one thread memory allows, mapped and copied."""
    rows = []
    for name, (empty, more) in SERVERS.items():
        mapped = fit(NODE, Model(128, more), empty=empty)
        copied = fit(NODE, Model(0, COPIED), empty=empty)
        ten = [
            fit(Node(16, 4 << 10), Model(m, p), empty=empty)
            for m, p in ((1280, more * 10), (0, COPIED * 10))
        ]
        rows.append(
            [name, str(mapped.by_memory), str(copied.by_memory), *(str(f.by_memory) for f in ten)]
        )
    head = ["server", "60 GiB, mapped", "60 GiB, copied", "4 GiB, ten models, mapped"]
    return table([*head, "4 GiB, ten models, copied"], rows)


def starts() -> str:
    """Returns when all replicas of a cluster are ready, by who fetches the model."""
    rows = []
    for nodes, each in ((1, 1), (1, 8), (4, 8)):
        once = Cluster([each] * nodes, TIMES, Scaling(nodes * each, nodes * each)).until(600)
        # Each for itself: the node's share of the store is divided among its replicas.
        apart = TIMES.start + TIMES.fetch * each + TIMES.open
        fetched = f"{sum(once.fetches)} GB"
        ready = f"{once.ready[-1]:.1f} s"
        rows.append([f"{nodes} x {each}", ready, fetched, f"{apart:.1f} s", f"{nodes * each} GB"])
    head = ["nodes x replicas", "once per node: ready", "fetched"]
    return table([*head, "each for itself: ready", "fetched"], rows)


def burst() -> str:
    """Returns what a sudden load meets: 16 clients where one replica was enough."""
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


def of_ray() -> str:
    """Returns what two local nodes of Ray do, beside the simulation."""
    import sys

    import numpy as np
    import onnx
    from onnx import numpy_helper, parser

    from bench.capacity.ray_nodes import compared, nodes, report

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
            return report(*compared(serve, store, Path(name) / "nodes"))


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables."""
    made = argparse.ArgumentParser("python -m bench capacity", description=__doc__)
    made.add_argument("--ray", action="store_true", help="compare with two local nodes of Ray")
    if made.parse_args(arguments).ray:
        print(of_ray())
        return 0
    print("\n\n".join((replicas(), starts(), burst())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
