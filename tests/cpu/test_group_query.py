"""GroupQueryAttention on kernels: what numpy's kernel computes, and caches written in place."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from running import Watch, floats, require_kernels

import tenonnx
from models import FLOAT, model, node, value
from tenonnx_cpu.attention.group_query import GROUP_QUERY

require_kernels()

GIVEN = (
    *("query", "key", "value", "past_key", "past_value", "lengths", "total", "cos", "sin", "ids"),
    *("bias", "sinks"),
)
INTS = {"lengths": TensorProto.INT32, "total": TensorProto.INT32, "ids": TensorProto.INT64}
ANGLES = floats(600, 8, seed=9)


def problem(
    length: int, totals: list[int], capacity: int,
    *, heads: int = 4, groups: int = 2, size: int = 16, packed: bool = False, rotary: bool = True,
    bias: bool = False, sinks: bool = False,
) -> dict[str, Any]:  # fmt: skip
    batch = len(totals)
    feeds = {
        "query": floats(batch, length, heads * size),
        "key": floats(batch, length, groups * size, seed=1),
        "value": floats(batch, length, groups * size, seed=2),
        "past_key": floats(batch, groups, capacity, size, seed=3),
        "past_value": floats(batch, groups, capacity, size, seed=4),
        "lengths": np.array(totals, np.int32) - 1,
        "total": np.array([max(totals)], np.int32),
    }
    if packed:
        feeds["query"] = np.concatenate([feeds.pop(n) for n in GIVEN[:3]], axis=2)
    if not capacity:
        del feeds["past_key"], feeds["past_value"]
    if rotary:
        feeds |= {"cos": np.cos(ANGLES), "sin": np.sin(ANGLES)}
    if bias:
        feeds["bias"] = floats(1, heads, length, max(totals), seed=5)
    if sinks:
        feeds["sinks"] = floats(heads, seed=6)
    return feeds


def session(feeds: dict[str, Any], heads: int = 4, groups: int = 2, **attributes: Any) -> Any:
    names = " ".join(name if name in feeds else "_" for name in GIVEN)
    made = node(
        "GroupQueryAttention", names, "y present_key present_value", domain="com.microsoft",
        num_heads=heads, kv_num_heads=groups, do_rotary=int("cos" in feeds), **attributes,
    )  # fmt: skip
    inputs = [value(n, INTS.get(n, FLOAT), [None] * x.ndim) for n, x in feeds.items()]
    ranks = {"y": 3, "present_key": 4, "present_value": 4}
    outputs = [value(name, FLOAT, [None] * rank) for name, rank in ranks.items()]
    proto = model([made], inputs, outputs, domains={"com.microsoft": 1})
    return tenonnx.InferenceSession(proto.SerializeToString())


def plain(feeds: dict[str, Any], **given: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENONNX_JIT", "0")
        return session(feeds, **given).run(None, feeds)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "token": ({"length": 1, "totals": [40], "capacity": 64}, {}),
    "token-without-room": ({"length": 1, "totals": [40], "capacity": 39}, {}),
    "ragged": ({"length": 1, "totals": [7, 40, 12], "capacity": 64}, {}),
    "prompt": ({"length": 9, "totals": [9, 9], "capacity": 0}, {}),
    "prompt-in-cache": ({"length": 9, "totals": [9], "capacity": 32}, {}),
    "chunk": ({"length": 7, "totals": [30, 30], "capacity": 64}, {}),
    "packed": ({"length": 3, "totals": [30], "capacity": 64, "packed": True}, {}),
    "interleaved": ({"length": 1, "totals": [30], "capacity": 64}, {"rotary_interleaved": 1}),
    "no-rotary": ({"length": 2, "totals": [30], "capacity": 64, "rotary": False}, {}),
    "scaled": ({"length": 1, "totals": [30], "capacity": 64}, {"scale": 0.5}),
    "window": ({"length": 1, "totals": [40], "capacity": 64}, {"local_window_size": 8}),
    "prompt-in-window": ({"length": 300, "totals": [300], "capacity": 0}, {"local_window_size": 8}),
    "chunk-in-window": ({"length": 3, "totals": [40], "capacity": 64}, {"local_window_size": 8}),
    "padded-prompt": ({"length": 9, "totals": [9, 5], "capacity": 64}, {}),
    "capped": ({"length": 1, "totals": [40], "capacity": 64}, {"softcap": 5.0}),
    "smooth": ({"length": 1, "totals": [40], "capacity": 64}, {"smooth_softmax": 1}),
    "sinks": ({"length": 1, "totals": [40], "capacity": 64, "sinks": True}, {}),
    "prompt-with-sinks": (
        {"length": 300, "totals": [300], "capacity": 0, "sinks": True},
        {"local_window_size": 8},
    ),
    "biased": ({"length": 1, "totals": [40], "capacity": 64, "bias": True}, {}),
    "prompt-biased": ({"length": 20, "totals": [20], "capacity": 0, "bias": True}, {}),
    "both-ways": ({"length": 20, "totals": [20], "capacity": 0}, {"causal": 0}),
    "one-group": ({"length": 1, "totals": [500], "capacity": 512, "groups": 1}, {"groups": 1}),
    "own-keys": ({"length": 1, "totals": [300], "capacity": 512, "groups": 4}, {"groups": 4}),
    "grown": (
        {"length": 1, "totals": [600], "capacity": 599, "size": 64, "groups": 4},
        {"groups": 4},
    ),
    "grown-twice": (
        {"length": 2, "totals": [590], "capacity": 589, "size": 64, "rotary": False},
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_numpy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, attributes = CASES[name]
    feeds = problem(**sizes)
    expected = plain(feeds, **attributes)
    watch = Watch(GROUP_QUERY, monkeypatch)
    found = session(feeds, **attributes).run(None, feeds)
    assert watch.calls == 1
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("given", [[[21]], [[3, 4]]])
def test_positions_that_are_given(given: Any) -> None:
    ids = np.array(given, np.int64)
    feeds = problem(ids.size, [22], 64) | {"ids": ids}
    for ours, theirs in zip(session(feeds).run(None, feeds), plain(feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("totals", [[6], [24], [25], [33], [34], [70], [70, 70], [24, 12]])
@pytest.mark.parametrize("length", [1, 3, 6])
def test_caches_of_the_last_tokens_alone(totals: list[int], length: int) -> None:
    feeds = problem(length, totals, 24)
    given = {"local_window_size": 16, "sliding_window_cache": 1}
    results = zip(session(feeds, **given).run(None, feeds), plain(feeds, **given), strict=True)
    for number, (ours, theirs) in enumerate(results):
        for entry, total in enumerate(totals):
            count = (
                length
                if number == 0
                else total
                if total <= 24
                else total - 9 * -((24 - total) // 9)
            )
            places = np.s_[entry, :count] if number == 0 else np.s_[entry, :, :count]
            np.testing.assert_allclose(ours[places], theirs[places], rtol=1e-5, atol=1e-6)


def test_captures_heed_lengths() -> None:
    feeds = problem(1, [20], 64)
    made = session(feeds)
    for total in (20, 21, 22, 40, 64, 65):
        feeds |= {"lengths": np.array([total - 1], np.int32), "total": np.array([total], np.int32)}
        for ours, theirs in zip(made.run(None, feeds), plain(feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_lengths_that_lie_apart() -> None:
    feeds = problem(1, [12, 20, 9], 64)
    made, expected = session(feeds), plain(feeds)
    feeds["lengths"] = np.repeat(feeds["lengths"], 2)[::2]
    for ours, theirs in zip(made.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_bias_of_another_length_is_refused() -> None:
    feeds = problem(1, [20], 64, bias=True)
    feeds["bias"] = floats(1, 4, 1, 23)
    with pytest.raises(tenonnx.RuntimeException, match="23"):
        session(feeds).run(None, feeds)


def test_scores_that_are_asked_for_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = problem(1, [40], 64)
    watch = Watch(GROUP_QUERY, monkeypatch)
    session(feeds, qk_output=1).run(None, feeds)
    assert watch.calls == 0


def test_a_cache_that_is_bound_to_its_output_is_written_in_place() -> None:
    feeds = problem(1, [40], 4096)
    made = session(feeds)
    expected = made.run(None, feeds)
    values = {name: tenonnx.OrtValue.ortvalue_from_numpy(x.copy()) for name, x in feeds.items()}
    binding = made.io_binding()
    for name, given in values.items():
        binding.bind_ortvalue_input(name, given)
    y = tenonnx.OrtValue.ortvalue_from_numpy(np.zeros_like(feeds["query"]))
    binding.bind_ortvalue_output("y", y)
    for name in ("key", "value"):
        binding.bind_ortvalue_output(f"present_{name}", values[f"past_{name}"])
    for _ in range(3):  # what records runs is imported by the second one
        made.run_with_iobinding(binding)
    tracemalloc.start()
    try:
        made.run_with_iobinding(binding)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < feeds["past_key"].nbytes / 4
    found = y, values["past_key"], values["past_value"]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-6)


def test_caches_that_are_bound_crosswise_are_not_mixed_up() -> None:
    feeds = problem(1, [40], 64)
    made = session(feeds)
    expected = made.run(None, feeds)
    values = {name: tenonnx.OrtValue.ortvalue_from_numpy(x.copy()) for name, x in feeds.items()}
    binding = made.io_binding()
    for name, given in values.items():
        binding.bind_ortvalue_input(name, given)
    binding.bind_output("y")
    binding.bind_ortvalue_output("present_key", values["past_value"])
    binding.bind_ortvalue_output("present_value", values["past_key"])
    made.run_with_iobinding(binding)
    found = binding.copy_outputs_to_cpu()
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
