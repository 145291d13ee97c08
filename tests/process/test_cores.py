"""The number of processors that a process takes itself to have."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

import pytest

from tenonnx.process import cores

GRANTED = [
    pytest.param("0::/", {"cpu.max": "150000 100000\n"}, 1.5, id="v2-container"),
    pytest.param("0::/", {"cpu.max": "max 100000\n"}, None, id="v2-unlimited"),
    pytest.param(
        "0::/a.slice/b.scope",
        {"a.slice/cpu.max": "200000 100000", "a.slice/b.scope/cpu.max": "max 100000"},
        2,
        id="v2-above",
    ),
    pytest.param("0::/../elsewhere", {"cpu.max": "50000 100000"}, 0.5, id="v2-outside"),
    pytest.param(
        "4:memory:/m\n3:cpu,cpuacct:/docker/1\n0::/",
        {"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"},
        3,
        id="v1-container",
    ),
    pytest.param(
        "3:cpuacct,cpu:/",
        {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
        None,
        id="v1-unlimited",
    ),
    pytest.param("2:cpuset:/", {}, None, id="no-hierarchy"),
]


@pytest.mark.parametrize(("own", "files", "expected"), GRANTED)
def test_quotas_of_control_groups(
    own: str, files: dict[str, str], expected: float | None, tmp_path: Path
) -> None:
    groups = tmp_path / "cgroup"
    groups.mkdir()
    for name, text in files.items():
        path = groups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own").write_text(own)
    assert cores.cpu_quota(tmp_path / "own", groups) == expected


def test_systems_without_control_groups_have_no_quota(tmp_path: Path) -> None:
    assert cores.cpu_quota(tmp_path / "own", tmp_path) is None


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="there is no affinity here")
@pytest.mark.parametrize(("quota", "expected"), [(None, 4), (1.5, 2), (0.2, 1), (64, 4)])
def test_the_smaller_of_quota_and_affinity_counts(
    quota: float | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.setattr(cores, "cpu_quota", lambda *_: quota)
    monkeypatch.setattr(cores, "granted_cores", cores.granted_cores.__wrapped__)
    monkeypatch.setattr(cores, "available_cores", cores.available_cores.__wrapped__)
    assert cores.available_cores() == expected
    assert cores.bound(0) == (None if quota is None else max(1, ceil(quota)))
    assert [cores.bound(1), cores.bound(64)] == [1, expected]
