from __future__ import annotations

import functools
import os

import pytest

from guest.separate import SOURCES, Program, run


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory, kernels: str) -> Program:
    """Run each program once, with the environment that a shell gives it."""
    kept = ("HOME", "LANG", "LC_ALL", "PATH", "SYSTEMROOT", "TENONNX_PROCESSOR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {
        "TENONNX_KERNELS_DIR": kernels,
        "PYTHONPATH": os.pathsep.join(SOURCES),
        "TENONNX_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "TENONNX_JIT": "0",
    }
    return functools.cache(functools.partial(run, environment))
