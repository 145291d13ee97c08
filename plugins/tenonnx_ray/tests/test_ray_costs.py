"""The cost of a replica, and Ray Data's share of a loop's throughput."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from held import LARGE, private_mib, titled

pytest.importorskip("ray.serve", reason="ray is not installed; tox -e ray")

import ray.data
from ray import serve

import tenonnx
from tenonnx_ray import OnnxDeployment, Predictor

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # those of Ray about itself are many
    pytest.mark.usefixtures("cluster"),
]

MOST_MIB = 15
LEAST_SHARE = 0.9
ROWS = 256
BATCHES = 48


def test_a_replica_holds_little_of_a_large_model(large: Path) -> None:
    class Empty:  # in here, so that workers need not find this module
        async def __call__(self, _: Any) -> int:
            return 0

    empty = serve.deployment(Empty).options(num_replicas=2)
    idle = serve.run(empty.bind(), name="empty", route_prefix="/empty")
    full = OnnxDeployment.options(num_replicas=3).bind(str(large))
    handle = serve.run(full, name="full", route_prefix="/full")
    x = np.ones((2, LARGE), np.float32)
    for _ in range(24):
        idle.remote(0).result()
        handle.remote({"x": x}).result()
    least = statistics.median(private_mib(pid) for pid in titled("ray::ServeReplica:empty"))
    replicas = [private_mib(pid) for pid in titled("ray::ServeReplica:full")]
    serve.shutdown()
    print(f"empty {least:.0f} MiB, with the model {replicas}")
    assert len(replicas) == 3
    assert max(replicas) - least <= MOST_MIB


def test_a_dataset_is_nearly_as_fast_as_a_loop(tmp_path: Path) -> None:
    """Once warm, in the best of some turns: other processes take time from either."""
    path = tmp_path / "layers.onnx"
    onnx.save(layers(16, 1024), path)
    data = [np.random.default_rng(i).random((ROWS, 1024), np.float32) for i in range(BATCHES)]
    session = tenonnx.InferenceSession(path)
    shares = []
    for _ in range(3):
        shares.append(of_dataset(path, data) / of_loop(session, data))
        print(f"a dataset's throughput is {shares[-1]:.2f} of a loop's")
        if shares[-1] >= LEAST_SHARE:
            return
    pytest.fail(f"a dataset's throughput is {shares} of a loop's")


def of_loop(session: tenonnx.InferenceSession, data: list[Any]) -> float:
    warm = BATCHES // 4
    for x in data[:warm]:
        session.run(None, {"x": x})
    start = time.perf_counter()
    for x in data[warm:]:
        session.run(None, {"x": x})
    return (BATCHES - warm) / (time.perf_counter() - start)


def of_dataset(path: Path, data: list[Any]) -> float:
    ray.data.DataContext.get_current().enable_progress_bars = False
    made = ray.data.from_numpy(data).map_batches(
        Predictor,
        fn_constructor_args=(str(path),),
        fn_constructor_kwargs={"columns": {"x": "data"}},
        batch_size=ROWS,
        compute=ray.data.ActorPoolStrategy(size=2),
    )
    ends = [time.perf_counter() for _ in made.iter_batches(batch_size=ROWS, prefetch_batches=1)]
    warm = BATCHES // 4
    return (BATCHES - warm) / (ends[-1] - ends[warm - 1])


def layers(count: int, size: int) -> onnx.ModelProto:
    """Return products one after another: as much to compute for each byte as models have."""
    steps = [f"h{i + 1} = MatMul(h{i}, W{i})" for i in range(count)]
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[n, {size}] x) => (float[n, {size}] h{count}) {{
            h0 = Identity(x) {" ".join(steps)} }}"""
    )
    for i in range(count):
        weight = (np.random.default_rng(i).random((size, size), np.float32) - 0.5) / 16
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"W{i}"))
    return model
