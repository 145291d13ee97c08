"""Ray for one module's tests: two CPUs, no dashboard, and nothing but what the tests need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from programs import PATHS
from weighted import large, path, weight

__all__ = ["cluster", "large", "path", "weight"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="ray is not installed; tox -e ray")
    cache = tmp_path_factory.mktemp("cache")
    variables = {"PYTHONPATH": os.pathsep.join(PATHS), "TENONNX_CACHE_DIR": str(cache)}
    ray.init(
        num_cpus=8,  # what there is does not matter: replicas of tests wait most of the time
        include_dashboard=False,
        object_store_memory=200 << 20,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": variables},
    )
    yield ray
    ray.shutdown()
