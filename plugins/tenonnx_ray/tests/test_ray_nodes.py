"""The simulation says what two local nodes of Ray do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from programs import PATHS
from sources import ROOT

pytest.importorskip("ray.cluster_utils", reason="ray is not installed; tox -e ray")


def test_two_nodes_do_as_is_simulated(tmp_path: Path) -> None:
    """Within a quarter, which a busy machine leaves."""
    command = [sys.executable, "-m", "bench", "capacity", "--ray", "--output", str(tmp_path)]
    places = {"PYTHONPATH": os.pathsep.join([*PATHS, str(ROOT)])}
    environment = os.environ | places
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    rows = re.findall(r"^\| (\w+) \| (.*?) \| (.*?) \|$", done.stdout, re.M)
    found = {name: (measured, simulated) for name, measured, simulated in rows}
    assert found["fetches"] == ("[1, 1]", "[1, 1]")
    for name in ("first", "last", "throughput", "median", "decided", "scaled", "before"):
        measured, simulated = map(float, found[name])
        assert measured == pytest.approx(simulated, rel=0.25), name


# The head has no CPUs, so two replicas are on two other nodes, one of which fails.
FAILING = """
import sys, time
import numpy as np, ray
from ray import serve
from ray.cluster_utils import Cluster
from tenonnx_ray import OnnxDeployment

one = {"num_cpus": 1, "object_store_memory": 100 << 20}
head = {**one, "num_cpus": 0, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
failing, _ = [cluster.add_node(**one) for _ in range(2)]
ray.init(cluster.address, log_to_driver=False)
x, counts = np.ones((1, 4), np.float32), {True: 0, False: 0}

def running():
    (deployment,) = serve.status().applications["default"].deployments.values()
    return deployment.replica_states.get("RUNNING", 0)

def answers_until(wanted):
    until = time.time() + 90
    while running() != wanted and time.time() < until:
        try:
            found = handle.remote({"x": x}).result(timeout_s=20)["y"]
            counts[bool(np.allclose(found, right))] += 1
        except Exception:
            counts[False] += 1
        time.sleep(0.1)
    return running()

try:
    serve.start(proxy_location="Disabled")
    made = OnnxDeployment.options(
        num_replicas=2, max_replicas_per_node=1, ray_actor_options={"num_cpus": 1}
    )
    handle = serve.run(made.bind(sys.argv[1]), route_prefix=None)
    right = handle.remote({"x": x}).result()["y"]
    told = [running()]
    cluster.remove_node(failing, allow_graceful=False)
    told.append(answers_until(1))
    cluster.add_node(**one)
    told.append(answers_until(2))
    print("replicas", told, "answered", counts[True], "lost", counts[False])
finally:
    ray.shutdown()
    cluster.shutdown()
"""


def test_replicas_of_a_node_that_fails_go_to_another(path: Path) -> None:
    """Others answer meanwhile; a request that was on the node may be lost."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*PATHS, str(ROOT)])}
    command = [sys.executable, "-c", FAILING, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.search(r"replicas \[2, 1, 2\] answered (\d+) lost (\d+)", done.stdout)
    assert found, done.stdout
    answered, lost = map(int, found.groups())
    assert answered > lost
