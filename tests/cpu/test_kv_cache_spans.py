"""Steps captured together with attention whose caches are bound to inputs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from running import floats, require_kernels

import tenonnx
from models import FLOAT, INT64, model, node, value
from tenonnx_cpu.capture.kv_cache_span import KvCacheSpan
from tenonnx_cpu.capture.kv_cache_step import is_memory_of

require_kernels()

LAYERS, HEADS, GROUPS, SIZE, WIDTH, CAPACITY = 2, 4, 2, 8, 32, 16
CACHES = [f"{kind}{layer}" for layer in range(LAYERS) for kind in "kv"]
Feeds = dict[str, Any]


def decoder(*more: Any) -> onnx.ModelProto:
    """Return two layers of attention with dense layers; how many tokens there are says a mask."""
    nodes = [
        node("ReduceSum", "mask axis", "seen"),
        node("Sub", "seen one", "before64"),
        node("Cast", "before64", "before", to=TensorProto.INT32),
        node("Shape", "mask", "sizes"),
        node("Gather", "sizes one", "total64"),
        node("Cast", "total64", "total", to=TensorProto.INT32),
        node("Tanh", "x", "h0"),
        *more,
    ]
    weights: Feeds = {"one": np.array(1), "axis": np.array([1])}
    packed = (HEADS + 2 * GROUPS) * SIZE
    for i in range(LAYERS):
        weights[f"qkv{i}"] = floats(WIDTH, packed, seed=i) / 4
        weights[f"out{i}"] = floats(HEADS * SIZE, WIDTH, seed=9 + i) / 4
        nodes += [
            node("MatMul", f"h{i} qkv{i}", f"p{i}"),
            node(
                "GroupQueryAttention", f"p{i} _ _ k{i} v{i} before total", f"a{i} nk{i} nv{i}",
                domain="com.microsoft", num_heads=HEADS, kv_num_heads=GROUPS,
            ),
            node("MatMul", f"a{i} out{i}", f"m{i}"),
            node("Add", f"h{i} m{i}", f"h{i + 1}"),
        ]  # fmt: skip
    nodes.append(node("Sigmoid", f"h{LAYERS}", "y"))
    cache = ["b", GROUPS, "past", SIZE]
    inputs = [value("x", FLOAT, ["b", "n", WIDTH]), value("mask", INT64, ["b", "total"])]
    inputs += [value(name, FLOAT, cache) for name in CACHES]
    outputs = [value("y", FLOAT, ["b", "n", WIDTH])]
    outputs += [value(f"n{name}", FLOAT, cache) for name in CACHES]
    outputs += [value(name, FLOAT, cache) for each in more for name in each.output]
    return model(nodes, inputs, outputs, weights, domains={"": 21, "com.microsoft": 1})


def opened(proto: onnx.ModelProto) -> tenonnx.InferenceSession:
    return tenonnx.InferenceSession(proto.SerializeToString(), providers=["cpu"])


def caches() -> Feeds:
    return {name: np.zeros((1, GROUPS, CAPACITY, SIZE), np.float32) for name in CACHES}


def feeds(count: int, before: int) -> Feeds:
    mask = np.ones((1, before + count), np.int64)
    return {"x": floats(1, count, WIDTH, seed=before), "mask": mask}


def bound(session: Any, held: Feeds, in_place: Any = CACHES) -> tenonnx.IOBinding:
    """Return a binding whose caches are outputs' memory, too."""
    binding: tenonnx.IOBinding = session.io_binding()
    for name, array in held.items():
        given = tenonnx.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(name, given)
        if name in in_place:
            binding.bind_ortvalue_output(f"n{name}", given)
    for output in session.get_outputs():
        if output.name.removeprefix("n") not in in_place:
            binding.bind_output(output.name)
    return binding


def step(session: Any, binding: Any, given: Feeds) -> Feeds:
    for name, array in given.items():
        binding.bind_cpu_input(name, array)
    session.run_with_iobinding(binding)
    names = binding._outputs
    return dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))


def span(session: tenonnx.InferenceSession) -> KvCacheSpan:
    """Return the only call of a plan that has caches in it."""
    (found,) = spans(session)
    return found


def spans(session: tenonnx.InferenceSession) -> list[KvCacheSpan]:
    owners = [getattr(each, "__self__", None) for each in session._plan._code.namespace.values()]
    return list({id(own): own for own in owners if isinstance(own, KvCacheSpan)}.values())


def captures(session: tenonnx.InferenceSession) -> int:
    cell: Any = span(session)._in_place
    return len(cell.__self__) // 2 - 1


WORDS = [(3, 0), *((1, n) for n in range(3, 9)), (4, 9), *((1, n) for n in range(13, 16))]
"""Tokens of each run, and those before."""


@pytest.mark.parametrize("in_place", [CACHES, CACHES[:2], CACHES[1:3], []])
def test_tokens_one_after_the_other(in_place: list[str]) -> None:
    one = opened(decoder())
    held, wanted = caches(), caches()
    binding = bound(one, held, in_place)
    for count, before in WORDS:
        given = feeds(count, before)
        expected = opened(decoder()).run(None, given | wanted)
        wanted = dict(zip(CACHES, (x.copy() for x in expected[1:]), strict=True))
        found = step(one, binding, given)
        np.testing.assert_allclose(found["y"], expected[0], rtol=1e-6)
        for name in CACHES:
            np.testing.assert_allclose(found[f"n{name}"], wanted[name], rtol=1e-6)
            assert is_memory_of(found[f"n{name}"], held[name]) == (name in in_place)
            held[name][...] = found[f"n{name}"]
    assert (captures(one) > 0) == (in_place == CACHES)


def test_a_step_of_one_more_token_is_one_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened(decoder())
    binding = bound(one, caches())
    for before in range(4):
        step(one, binding, feeds(1, before))
    assert captures(one) == 1
    monkeypatch.setattr("tenonnx_cpu.attention.group_query.GroupQueryAttributes.launch", None)
    assert np.isfinite(step(one, binding, feeds(1, 4))["y"]).all()


def test_a_cache_that_something_else_reads_is_not_overwritten() -> None:
    proto = decoder(node("Neg", "k1", "other"))
    held = caches()
    held["k1"] += 1
    one = opened(proto)
    binding = bound(one, held)
    for before in range(3):
        earlier = held["k1"].copy()
        found = step(one, binding, feeds(1, before))
        np.testing.assert_array_equal(found["other"], -earlier)


def test_more_tokens_than_there_is_room_for() -> None:
    one = opened(decoder())
    binding = bound(one, caches())
    for before in range(CAPACITY):
        step(one, binding, feeds(1, before))
    with pytest.raises(tenonnx.errors.InvalidArgument, match="buffer bound to it"):
        step(one, binding, feeds(1, CAPACITY))
    assert np.isfinite(step(one, binding, feeds(1, 5))["y"]).all()


def test_caches_of_different_layers_in_the_same_memory() -> None:
    """The memory of one is never overwritten while another is still to be read."""
    held = caches()
    held["k1"] = held["k0"]
    given, one = feeds(1, 0), opened(decoder())
    expected = one.run(None, given | {name: x.copy() for name, x in held.items()})
    found = step(one, bound(one, held, ["k0", "v0"]), given)
    np.testing.assert_allclose(found["y"], expected[0], rtol=1e-6)


@pytest.mark.usefixtures("keeps_plans")
def test_a_kept_plan_has_the_capture(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(decoder(), path)
    first = tenonnx.InferenceSession(path, providers=["cpu"])
    wanted = step(first, bound(first, caches()), feeds(1, 0))
    again = tenonnx.InferenceSession(path, providers=["cpu"])
    assert captures(again) == captures(first) == 1
    held = caches()
    binding = bound(again, held)
    np.testing.assert_array_equal(step(again, binding, feeds(1, 0))["y"], wanted["y"])
    assert captures(again) == 1
    for count, before in WORDS:
        step(again, binding, feeds(count, before))
    options = tenonnx.RunOptions()
    plain = again.run(None, feeds(1, 0) | caches(), options)
    np.testing.assert_allclose(plain[0], wanted["y"], rtol=1e-6)


def test_more_caches_than_a_capture_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers are in several spans, whose results are those of one."""
    with monkeypatch.context() as patch:
        patch.setattr("tenonnx_cpu.jit.layout.MOST_ARGUMENTS", 2 * LAYERS + 3)
        several = opened(decoder())
    one = opened(decoder())
    assert (len(spans(several)), len(spans(one))) == (LAYERS, 1)
    bindings = [bound(each, caches()) for each in (several, one)]
    for count, before in WORDS:
        found, wanted = (
            step(session, binding, feeds(count, before))
            for session, binding in zip((several, one), bindings, strict=True)
        )
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)
