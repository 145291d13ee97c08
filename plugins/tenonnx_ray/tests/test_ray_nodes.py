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
