"""Two local nodes of Ray beside their simulation.

Both nodes are on this machine, so what replicas compute is not what is compared: a request takes a
set time, one at a time, and object storage is a folder that is read as slowly as is said.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.capacity.simulation import Cluster, Scaling, Times

RUN = 0.05
SLOW = 4.0
NODES = 2
EACH = 2
CLIENTS = 12
SECONDS = 8.0
# Seconds for which more replicas must be wanted.
DELAY = 5.0

WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    """Measured or simulated times.

    Attributes:
        fetches: How often nodes fetched the model, each of them.
        first: Seconds until the first replica was ready, from the wish for it.
        last: Seconds until all were.
        throughput: Answers per second to some clients that each wait for the last answer.
        median: Seconds of a request of theirs.
    """

    fetches: list[int]
    first: float
    last: float
    throughput: float
    median: float


@dataclass(frozen=True)
class Scaled:
    """The times of autoscaling, or of its simulation.

    Attributes:
        decided: Seconds of load until all replicas were asked for.
        scaled: Seconds of load until all were ready.
        before: Answers per second of the one replica until then.
    """

    decided: float
    scaled: float
    before: float


@contextlib.contextmanager
def nodes(paths: list[str], cache: Path) -> Iterator[Any]:
    """Yield Ray Serve on two nodes of two CPUs each."""
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster as Local

    how = {"num_cpus": EACH, "object_store_memory": 100 << 20}
    head = {**how, "include_dashboard": False}
    local = Local(initialize_head=True, head_node_args=head)
    for _ in range(NODES - 1):
        local.add_node(**how)
    variables = {"PYTHONPATH": os.pathsep.join(paths), "TENONNX_CACHE_DIR": str(cache)}
    ray.init(local.address, log_to_driver=False, runtime_env={"env_vars": variables})
    try:
        serve.start(proxy_location="Disabled")
        yield serve
    finally:
        with contextlib.suppress(Exception):
            serve.shutdown()
        ray.shutdown()
        local.shutdown()


def deployment(serve: Any, model: Path, folder: Path, slow: float) -> Any:
    """Return a deployment whose replicas fetch a model to a folder of their node."""

    class Timed:  # in here, so that workers need not find this module
        def __init__(self) -> None:
            import asyncio

            import ray

            from tenonnx import InferenceSession
            from tenonnx_ray import fetching

            said = {"node": ray.get_runtime_context().get_node_id(), "begun": time.time()}
            fetch, fetched = fetching._fetch, []

            def slowly(*given: Any) -> None:
                time.sleep(slow)
                fetch(*given)
                fetched.append(1)

            vars(fetching)["_fetch"] = slowly
            place = fetching.fetched(f"file://{model}", folder / said["node"])
            said["got"] = time.time()
            self._session = InferenceSession(place)
            said |= {"ready": time.time(), "fetched": len(fetched)}
            (folder / f"{os.getpid()}.json").write_text(json.dumps(said))
            self._one = asyncio.Lock()

        async def __call__(self, _: int) -> int:
            import asyncio

            async with self._one:
                await asyncio.sleep(RUN)
            return 0

    folder.mkdir(parents=True)
    return serve.deployment(Timed).options(max_ongoing_requests=100)


def deployed(serve: Any, made: Any, folder: Path, replicas: int) -> tuple[Any, float, list[Any]]:
    """Return a handle, when replicas were wished for, and what each of them noted."""
    wished = time.time()
    handle = serve.run(made.options(num_replicas=replicas).bind(), route_prefix=None)
    notes = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert len(notes) == replicas
    return handle, wished, notes


def asked(handle: Any, clients: int, seconds: float) -> tuple[float, list[float]]:
    """Return the answers per second to some clients, and the seconds that each answer took."""
    taken: list[float] = []
    begin = time.perf_counter() + 1  # a second to warm
    end = begin + seconds

    def ask() -> None:
        while (sent := time.perf_counter()) < end:
            handle.remote(0).result()
            now = time.perf_counter()
            if begin <= now < end:
                taken.append(now - sent)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(taken) / seconds, taken


def of_one(serve: Any, model: Path, folder: Path) -> Times:
    """Return what one replica takes."""
    handle, wished, (note,) = deployed(serve, deployment(serve, model, folder, SLOW), folder, 1)
    _, taken = asked(handle, 1, 2)
    serve.delete("default")
    return Times(
        start=note["begun"] - wished,
        fetch=note["got"] - note["begun"],
        open=note["ready"] - note["got"],
        run=RUN,
        route=statistics.median(taken) - RUN,
    )


def compared(serve: Any, model: Path, folder: Path) -> tuple[Times, Outcome, Outcome]:
    """Return what one replica takes, and what four do: measured, and simulated.

    How long a process takes to start is of the four: it says how busy the machine is, and whether
    Ray has idle processes left, neither of which is simulated.
    """
    one = of_one(serve, model, folder / "one")
    replicas = NODES * EACH
    many = deployment(serve, model, folder / "many", SLOW)
    handle, wished, notes = deployed(serve, many, folder / "many", replicas)
    rate, taken = asked(handle, CLIENTS, SECONDS)
    serve.delete("default")
    times = replace(one, start=statistics.mean(each["begun"] for each in notes) - wished)
    by_node: dict[str, int] = {}
    for each in notes:
        by_node[each["node"]] = by_node.get(each["node"], 0) + each["fetched"]
    ready = [each["ready"] - wished for each in notes]
    fetches, median = sorted(by_node.values()), statistics.median(taken)
    return times, Outcome(fetches, min(ready), max(ready), rate, median), simulated(times, replicas)


def simulated(times: Times, replicas: int) -> Outcome:
    """Return what the simulation says of the same."""
    cluster = Cluster([EACH] * NODES, times, Scaling(replicas, replicas))
    ready = list(cluster.until(300).ready)
    before = len(cluster.result.latencies)
    cluster.closed(CLIENTS)
    result = cluster.until(400)
    median = statistics.median(result.latencies[before:])
    return Outcome(result.fetches, ready[0], ready[-1], result.throughput(310, 400), median)


def scaled(serve: Any, model: Path, folder: Path, times: Times) -> tuple[Scaled, Scaled]:
    """Return what autoscaling does when clients come, and the simulation of it.

    How long the new processes take to start is told to the simulation, as above.
    """
    replicas = NODES * EACH
    config: dict[str, float] = {"min_replicas": 1, "max_replicas": replicas}
    config |= {"target_ongoing_requests": 2}
    config |= {"upscale_delay_s": DELAY, "metrics_interval_s": 0.5, "look_back_period_s": 1.0}
    made = deployment(serve, model, folder, 0.0).options(autoscaling_config=config)
    handle = serve.run(made.bind(), route_prefix=None)
    with ThreadPoolExecutor(1) as pool:
        begin, decided = time.time(), 0.0
        load = pool.submit(asked, handle, CLIENTS, DELAY + 2)
        while time.time() < begin + WAIT_SECONDS and not decided:
            decided = time.time() - begin if _replicas(serve) >= replicas else 0.0
            time.sleep(0.1)
        before = load.result()[0]
    while len(list(folder.glob("*.json"))) < replicas and time.time() < begin + WAIT_SECONDS:
        time.sleep(0.1)
    notes = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    serve.delete("default")
    new = sorted(note["begun"] for note in notes)[1:]
    found = Scaled(decided, max(note["ready"] for note in notes) - begin, before)
    start = statistics.mean(new) - begin - decided
    # The first replica has fetched the model already, on one of the nodes.
    times = replace(times, start=start, fetch=0.0)
    cluster = Cluster([EACH] * NODES, times, Scaling(1, replicas, 2, interval=0.5, delay=DELAY))
    cluster.until(60)
    cluster.closed(CLIENTS)
    result = cluster.until(60 + WAIT_SECONDS)
    rate = result.throughput(61, 60 + DELAY + 3)
    return found, Scaled(max(result.wished) - 60, max(result.ready) - 60, rate)


def _replicas(serve: Any) -> int:
    """Return how many replicas there are, or start."""
    (application,) = serve.status().applications.values()
    return sum(
        count
        for deployed in application.deployments.values()
        for state, count in deployed.replica_states.items()
        if state in ("STARTING", "RUNNING")
    )


def as_rows(*pairs: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what was measured and what was simulated, by what it is."""
    return [
        {"what": what, "measured": value, "simulated": getattr(said, what)}
        for found, said in pairs
        for what, value in asdict(found).items()
    ]


def as_table(times: Times, rows: list[dict[str, Any]]) -> str:
    """Return both as a table."""
    lines = ["inputs: " + ", ".join(f"{name} {value:.3g}" for name, value in asdict(times).items())]
    lines += ["| what | measured | simulated |", "|---|---|---|"]
    for row in rows:
        both = (row["measured"], row["simulated"])
        shown = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in both]
        lines.append(f"| {row['what']} | {shown[0]} | {shown[1]} |")
    return "\n".join(lines)
