"""The simulation of a cluster keeps to what can be known without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.capacity.__main__ import main
from bench.capacity.plan import Model, Node, fit
from bench.capacity.simulation import Cluster, Scaling, Times

TIMES = Times(start=4, fetch=10, open=1, run=0.1)


def test_what_is_scarcer_decides() -> None:
    model = Model(mapped=1000, private=10)
    found = fit(Node(cores=8, memory=3200), model, empty=100)
    assert (found.by_memory, found.by_cores, found.replicas) == (20, 8, 8)
    assert fit(Node(cores=8, memory=1300), model, empty=100).replicas == 2
    assert fit(Node(cores=8, memory=900), model, empty=100).replicas == 0


def test_a_node_fetches_once_and_its_replicas_wait_for_it() -> None:
    cluster = Cluster([2, 2], TIMES, Scaling(4, 4))
    result = cluster.until(30)
    assert result.fetches == [1, 1]
    assert result.ready == [15.0] * 4


def test_one_that_comes_later_finds_it() -> None:
    cluster = Cluster([2, 2], TIMES, Scaling(1, 4, target=1, interval=1, delay=20))
    cluster.closed(2)
    result = cluster.until(100)
    # The second goes to the other node; there is no use for a third.
    assert result.ready == pytest.approx([15, 21 + 15])
    assert result.fetches == [1, 1]
    more = Cluster([2], TIMES, Scaling(1, 2, target=1, interval=1, delay=20))
    more.closed(2)
    assert more.until(100).ready == pytest.approx([15, 21 + 5])


def test_replicas_that_start_together_share_the_cores() -> None:
    times = Times(start=4, fetch=0, open=1, run=0.1, together=1)
    assert Cluster([2], times, Scaling(2, 2)).until(30).ready == pytest.approx([10.0, 10.0])


@pytest.mark.parametrize(("clients", "replicas"), [(1, 1), (8, 2), (64, 4)])
def test_answers_are_no_more_than_replicas_give_and_obey_littles_law(
    clients: int, replicas: int
) -> None:
    cluster = Cluster([replicas], Times(0, 0, 0, run=0.1, route=0.02), Scaling(replicas, replicas))
    cluster.closed(clients)
    result = cluster.until(200)
    rate = result.throughput(20, 200)
    assert rate <= replicas / 0.1 + 0.1
    mean = sum(result.latencies) / len(result.latencies)
    assert rate * mean == pytest.approx(clients, rel=0.02)
    if clients >= 16 * replicas:
        assert rate == pytest.approx(replicas / 0.1, rel=0.02)


def test_requests_at_random_wait_as_queueing_theory_says() -> None:
    """One server with a fixed time: a mean wait of load x time / (2 x (1 - load)) (M/D/1)."""
    cluster = Cluster([1], Times(0, 0, 0, run=0.1), Scaling(1, 1))
    cluster.open(rate=7, seconds=4000)
    result = cluster.until(4100)
    mean = sum(result.latencies) / len(result.latencies)
    assert mean == pytest.approx(0.1 + 0.7 * 0.1 / (2 * 0.3), rel=0.05)


def test_requests_before_there_is_a_replica_are_answered() -> None:
    cluster = Cluster([1], TIMES, Scaling(1, 1))
    cluster.open(rate=1, seconds=10)
    result = cluster.until(60)
    assert result.latencies
    assert min(result.ends) == pytest.approx(15.1)
    assert result.latency(1) == max(result.latencies)


def test_the_document_has_what_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--output", str(tmp_path)]) == 0
    text = (Path(__file__).parents[2] / "docs/capacity.md").read_text()
    for table in capsys.readouterr().out.split("\n\n"):
        assert table.strip() in text
