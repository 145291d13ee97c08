"""Weights of cached plans: views of the plan file, and handles when somebody asks."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from plan_models import MODELS, X, answers, assert_same, is_kept, opened, saved

import tenonnx
from child import child
from tenonnx.plan_cache.compiling import uncached
from tenonnx.weights.registry import default_registry

COUNT = 50


def sums(path: Path, count: int = COUNT) -> Path:
    """Write a model of many small weights, which numpy adds up."""
    names = [f"w{n}" for n in range(count)]
    nodes = [onnx.helper.make_node("Sum", ["x", *names], ["y"])]
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 8]) for n in "xy")
    rows = np.random.default_rng(2).standard_normal((count, 8)).astype(np.float32)
    given = [onnx.numpy_helper.from_array(*pair) for pair in zip(rows, names, strict=True)]
    graph = onnx.helper.make_graph(nodes, "sums", [x], [y], given)
    opsets = [onnx.helper.make_opsetid("", 21)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def constants(session: tenonnx.InferenceSession) -> list[Any]:
    """Return the arrays that a plan's code names."""
    named = session._plan._code.namespace.values()
    return [each for each in named if isinstance(each, np.ndarray)]


def test_handles_are_made_when_they_are_asked_for(tmp_path: Path) -> None:
    path = sums(tmp_path / "model.onnx")
    keys = {weight.key for weight in opened(path).weights}
    gc.collect()
    there = default_registry()._weights
    assert not keys & set(there._references), "nobody has the first session's any more"
    session = opened(path)
    assert is_kept(session)
    assert not keys & set(there._references)
    assert {weight.key for weight in session.weights} == keys <= set(there._references)
    assert session.weights is session.weights


def test_a_plan_has_no_bytes_of_weights_that_nothing_reads(tmp_path: Path) -> None:
    """They lie beside those that something reads, in the process that read the model."""
    path = sums(tmp_path / "model.onnx")
    proto = onnx.load(path)
    unread = np.random.default_rng(3).standard_normal((COUNT, 8)).astype(np.float32)
    given = [onnx.numpy_helper.from_array(row, f"u{n}") for n, row in enumerate(unread)]
    proto.graph.initializer.extend(given)
    onnx.save(proto, path)
    expected = answers(opened(path))
    gc.collect()
    session = opened(path)
    assert is_kept(session)
    assert_same(answers(session), expected)
    pools = {weight.storage.key: weight.storage for weight in session.weights}
    (pool,) = pools.values()
    assert pool.size == COUNT * 32


def test_runs_read_what_handles_have(tmp_path: Path) -> None:
    path = sums(tmp_path / "model.onnx")
    expected = answers(opened(path))
    gc.collect()
    one, two = opened(path), opened(path)
    assert_same(answers(one), expected)
    assert set(map(id, one.weights)) == set(map(id, two.weights))
    found, others = constants(one), constants(two)
    assert len(found) == COUNT
    assert all(any(np.shares_memory(a, w.array) for w in one.weights) for a in found)
    assert all(np.shares_memory(*pair) for pair in zip(found, others, strict=True))
    assert not any(array.flags.writeable for array in found)


def test_the_report_has_weights_that_nobody_asked_for(tmp_path: Path) -> None:
    path = sums(tmp_path / "model.onnx")
    opened(path)
    gc.collect()
    session = opened(path)
    gc.collect()
    report = default_registry().report()
    (row,) = [each for each in report.holders if each.name == "sums"]
    assert (row.weights, row.nbytes) == (COUNT, COUNT * 32)
    assert session.registry.report() == report


def test_the_pages_go_with_their_last_user(tmp_path: Path) -> None:
    path = sums(tmp_path / "model.onnx")
    opened(path)
    gc.collect()
    session = opened(path)
    array, storage = constants(session)[0], weakref.ref(session.weights[0].storage)
    expected = array.copy()
    del session
    gc.collect()
    np.testing.assert_array_equal(array, expected)
    assert storage() is not None
    del array
    gc.collect()
    assert storage() is None


@pytest.mark.parametrize("name", MODELS)
def test_a_large_model_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("tenonnx.plan_cache.place.MIN_LARGE_PARTS", 1)
    path = saved(tmp_path / "model.onnx", MODELS[name])
    first = opened(path)
    assert list(first.load_times) == ["read", "transform", "place", "compile"]
    assert not first._model.is_open
    expected = answers(first)
    monkeypatch.setattr("tenonnx.plan_cache.place.MIN_LARGE_PARTS", 1 << 40)
    whole, second = uncached(path, providers=["cpu"]), opened(path)
    assert not is_kept(whole)
    assert is_kept(second)
    assert_same(expected, answers(whole))
    assert_same(answers(second), expected)
    assert [r.name for r in first.transforms] == [r.name for r in whole.transforms]
    assert str(first.placement) == str(whole.placement)


OPENS = """
import ctypes, gc, json
import tenonnx
def private():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) << 10
session = tenonnx.InferenceSession({path!r}, providers=["cpu"])
opened = private()
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
print(json.dumps([session.load_times.uncached, list(session.load_times), opened - private()]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="private memory is read from /proc")
def test_the_memory_of_a_large_model_is_given_back(tmp_path: Path) -> None:
    """Of 20,000 parts, 34 MiB were free and not given back."""
    path = sums(tmp_path / "model.onnx", 10_000)
    for stages in (["read", "transform", "place", "compile"], ["open"]):
        uncached, found, idle = child(OPENS.format(path=str(path)))
        assert (uncached, found) == ("", stages)
        assert idle < 4 << 20


def test_a_large_model_is_held_where_its_plan_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenonnx.plan_cache.place.MIN_LARGE_PARTS", 1)
    monkeypatch.setenv("TENONNX_PLANS", "0")
    session = opened(saved(tmp_path / "model.onnx"))
    assert session._model.is_open
    assert list(session.load_times) == ["read", "transform", "place", "compile"]


def test_the_captures_of_a_large_model_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenonnx.plan_cache.place.MIN_LARGE_PARTS", 1)
    path = saved(tmp_path / "model.onnx")
    first = opened(path)
    answers(first)
    plans = Path(os.environ["TENONNX_CACHE_DIR"], "plans")
    if not any(hasattr(getattr(c, "__self__", None), "capture_cell") for c in namespace(first)):
        pytest.skip("nothing is captured without kernels")
    assert len(list(plans.glob("*.captures"))) == 1
    assert_same(answers(opened(path)), answers(first, X))


def namespace(session: tenonnx.InferenceSession) -> list[Any]:
    """Return what a plan's code names."""
    return list(session._plan._code.namespace.values())
