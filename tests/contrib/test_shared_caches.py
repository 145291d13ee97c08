"""GroupQueryAttention whose present outputs nobody wants, or another layer reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from models import FLOAT, model, node, value

INT32 = onnx.TensorProto.INT32
HEADS, GROUPS, SIZE = 4, 2, 16
MS = {"domain": "com.microsoft", "num_heads": HEADS, "kv_num_heads": GROUPS}
PRESENT = ["y", "present_k", "present_v"]


def floats(*shape: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def fed(queries: int, keys: int, past: int, total: int, batch: int = 1) -> dict[str, Any]:
    return {
        "q": floats(batch, queries, HEADS * SIZE, seed=1),
        "k": floats(batch, keys, GROUPS * SIZE, seed=2),
        "v": floats(batch, keys, GROUPS * SIZE, seed=3),
        "past_k": floats(batch, GROUPS, past, SIZE, seed=4),
        "past_v": floats(batch, GROUPS, past, SIZE, seed=5),
        "last": np.full(batch, total - 1, np.int32),
        "total": np.array([total], np.int32),
    }


def proto_of(nodes: list[onnx.NodeProto], feeds: dict[str, Any], outputs: list[str]) -> Any:
    inputs = [
        value(name, INT32 if array.dtype == np.int32 else FLOAT, [None] * array.ndim)
        for name, array in feeds.items()
    ]
    results = [value(name, FLOAT, None) for name in outputs]
    return model(nodes, inputs, results, domains={"com.microsoft": 1})


def runs(proto: Any, feeds: dict[str, Any], module: Any = tenonnx, level: int = 99) -> list[Any]:
    options = module.SessionOptions()
    options.graph_optimization_level = module.GraphOptimizationLevel(level)
    options.log_severity_level = 4
    content = proto.SerializeToString()
    session = module.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return [session.run(None, feeds) for _ in range(4)]  # captured, and replayed


def alike(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=False):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize("outputs", [PRESENT[:1], PRESENT[:2]])
@pytest.mark.parametrize(
    ("queries", "past", "total"), [(1, 5, 6), (3, 5, 8), (4, 8, 4), (2, 8, 5), (2, 8, 8)]
)
def test_without_present_outputs(
    queries: int, past: int, total: int, outputs: list[str], level: int
) -> None:
    """As with them; onnxruntime then leaves the new keys out."""
    feeds = fed(queries, queries, past, total)
    names = " ".join(feeds)
    whole = runs(
        proto_of([node("GroupQueryAttention", names, " ".join(PRESENT), **MS)], feeds, PRESENT),
        feeds,
        level=0,
    )
    part = proto_of([node("GroupQueryAttention", names, " ".join(outputs), **MS)], feeds, outputs)
    for found in runs(part, feeds, level=level):
        alike(found, whole[0])


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize("outputs", [PRESENT[:1], PRESENT])
@pytest.mark.parametrize(
    ("queries", "total", "window"),
    [(1, 8, -1), (3, 8, -1), (8, 8, -1), (3, 5, -1), (3, 3, -1), (3, 8, 3)],
)
def test_queries_without_new_keys(
    queries: int, total: int, window: int, outputs: list[str], level: int
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    feeds = fed(queries, 0, 8, total)
    attends = node(
        "GroupQueryAttention", " ".join(feeds), " ".join(outputs), local_window_size=window, **MS
    )
    proto = proto_of([attends], feeds, outputs)
    expected = runs(proto, feeds, onnxruntime)[0][:1]
    for found in runs(proto, feeds, level=level):
        alike(found[:1], expected)


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize("outputs", [PRESENT, PRESENT[:1]])
@pytest.mark.parametrize(("queries", "past", "total"), [(1, 7, 8), (3, 5, 8), (2, 8, 8)])
def test_a_layer_that_reads_what_another_one_extended(
    queries: int, past: int, total: int, outputs: list[str], level: int
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    feeds = fed(queries, queries, past, total)
    nodes = [
        node("GroupQueryAttention", " ".join(feeds), "h present_k present_v", **MS),
        node("Add", "h q", "s"),
        node("GroupQueryAttention", "s none none present_k present_v last total", "t", **MS),
        node("Relu", "t", "y"),
    ]
    proto = proto_of(nodes, feeds, outputs)
    none = onnx.numpy_helper.from_array(np.zeros((1, 0, GROUPS * SIZE), np.float32), "none")
    proto.graph.initializer.append(none)
    expected = runs(proto, feeds, onnxruntime)[0]
    for found in runs(proto, feeds, level=level):
        alike(found, expected)
    options = tenonnx.SessionOptions()
    options.graph_optimization_level = tenonnx.GraphOptimizationLevel(level)
    session = tenonnx.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    for _ in range(4):
        alike(_bound(session, feeds, outputs), expected)


def _bound(session: Any, feeds: dict[str, Any], outputs: list[str]) -> list[Any]:
    """Return results of caches that are bound to inputs and outputs, if they have room."""
    binding = session.io_binding()
    given = {
        name: tenonnx.OrtValue.ortvalue_from_numpy(array.copy()) for name, array in feeds.items()
    }
    for name, array in given.items():
        binding.bind_ortvalue_input(name, array)
    has_room = feeds["past_k"].shape[2] >= feeds["total"][0]
    for name in outputs:
        if has_room and name in PRESENT[1:]:
            binding.bind_ortvalue_output(name, given[name.replace("present", "past")])
        else:
            binding.bind_output(name)
    session.run_with_iobinding(binding)
    return [array.numpy() for array in binding.get_outputs()]
