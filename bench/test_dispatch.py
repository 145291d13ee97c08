"""The runtime's time per node, per lookup and per compilation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import tenonnx
from bench.builder import DOUBLE
from bench.child import bare_relus
from bench.models import relus, wide
from tenonnx.cli.timing import alternate
from tenonnx.planning.placement import place
from tenonnx.planning.plan import Plan

LENGTH = 200
LIMIT = 1.3
# Graph sizes; `--quick` takes a tenth.
NODES = {"1k": 1_000, "10k": 10_000}


def session_of(proto: Any) -> tenonnx.InferenceSession:
    return tenonnx.InferenceSession(proto, providers=["CPUExecutionProvider"])


def test_chain_of_relus(benchmark: Any, quick: bool) -> None:
    proto, feeds = relus(LENGTH, DOUBLE)
    session = session_of(proto)
    bare = bare_relus(feeds["x"], LENGTH)
    np.testing.assert_array_equal(session.run(None, feeds)[0], bare())
    benchmark(session.run, None, feeds)
    calls = (lambda: session.run(None, feeds), bare)
    mine, numpys = alternate(calls, 0, 3, 0.1 if quick else 1.0, pause=0)
    ratio = mine.fastest / numpys.fastest
    benchmark.extra_info["over_numpy"] = ratio
    print(f"{LENGTH} Relus take {ratio:.2f} times as long as the bare numpy calls")
    assert quick or ratio <= LIMIT


def test_known_weight_is_found(benchmark: Any) -> None:
    registry = tenonnx.WeightRegistry()
    storage = registry.from_buffer(bytes(1024))
    known = registry.view(storage, 0, 1024, ir.DataType.FLOAT, (16, 16))
    found = benchmark(registry.view, storage, 0, 1024, ir.DataType.FLOAT, (16, 16))
    assert found is known


def test_derived_weight_is_found(benchmark: Any) -> None:
    registry = tenonnx.WeightRegistry()
    known = registry.derive("key", lambda: np.ones(16, np.float32))
    found = benchmark(registry.derive, "key", lambda: pytest.fail("it was built again"))
    assert found is known


def test_known_file_is_found(benchmark: Any, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(1024))
    registry = tenonnx.WeightRegistry()
    known = registry.map(path)
    assert benchmark(registry.map, path) is known


@pytest.mark.parametrize("nodes", ["1k", "10k"])
def test_plan_is_compiled(benchmark: Any, nodes: str, quick: bool) -> None:
    session = session_of(wide(NODES[nodes] // (10 if quick else 1))[0])
    placed = place(session.model, session._providers)
    plan = benchmark.pedantic(Plan.of, args=(placed,), rounds=1 if quick else 3)
    assert len(plan.steps) == len(session.plan.steps)


@pytest.mark.parametrize("nodes", ["1k", "10k"])
def test_session_is_created(benchmark: Any, nodes: str, quick: bool) -> None:
    proto, _ = wide(NODES[nodes] // (10 if quick else 1))
    session = benchmark.pedantic(session_of, args=(proto,), rounds=1 if quick else 3)
    assert session.plan.steps
