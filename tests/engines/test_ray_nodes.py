"""The simulation says what two local nodes of Ray do."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray.cluster_utils", reason="ray is not installed; tox -e ray")


from bench.capacity.ray_nodes import compared, nodes, report
from programs import PATHS

pytestmark = pytest.mark.filterwarnings("ignore")  # those of Ray about itself are many


def test_two_nodes_do_as_is_simulated(path: Path, tmp_path: Path) -> None:
    """Within what a busy machine leaves: starts within a half, steady numbers within a quarter."""
    (tmp_path / "store").mkdir()
    for name in ("model.onnx", "data"):
        (path.parent / name).rename(tmp_path / "store" / name)
    with nodes(PATHS, tmp_path / "cache") as serve:
        times, found, said = compared(serve, tmp_path / "store", tmp_path / "nodes")
    print("\n" + report(times, found, said))
    assert found.fetches == said.fetches == [1, 1]
    assert found.first == pytest.approx(said.first, rel=0.5)
    assert found.last == pytest.approx(said.last, rel=0.5)
    assert found.throughput == pytest.approx(said.throughput, rel=0.25)
    assert found.median == pytest.approx(said.median, rel=0.25)
