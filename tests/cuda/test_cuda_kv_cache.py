"""Caches that grow in place: generations whose presents are the pasts of the next run."""

from __future__ import annotations

import functools
import threading
from typing import Any

import emulated
import numpy as np
import pytest
from kernel_calls import needs_compiler
from test_cuda_generation import (
    GRAPHED,
    GROUPS,
    HEADS,
    PAIRS,
    SIZE,
    WIDTH,
    attention_layers,
    grouped,
    mask,
    tokens,
)

import tenonnx
from models import FLOAT, model, node, value
from tenonnx.interface.ort_value import OrtValue
from tenonnx_cuda import kv_cache
from tenonnx_cuda.capture.graph import GraphedSteps
from tenonnx_cuda.capture.replay import Replayed
from tenonnx_cuda.capture.step_fusion import MAX_RUNS_WITHOUT_REPLAY


def joined(*, apart: bool = False, counted: bool = False) -> Any:
    """A layer as exporters write it that know no operator with a cache, behind a mask.

    Args:
        apart: Let another node read the values, too.
        counted: Let another node ask how many there were.
    """
    cache = ["batch", HEADS, "past", SIZE]
    nodes = [
        node("Reshape", "x heads", "split"),
        node("Transpose", "split", "new", perm=[0, 2, 1, 3]),
        node("Concat", "past_key new", "present_key", axis=2),
        node("Concat", "past_value new", "present_value", axis=-2),
        node("Attention", "new present_key present_value bias", "y"),
        node("ReduceMin", "present_value", "least") if apart else node("Mul", "y y", "least"),
        node("Add", "y least", "found" if counted else "logits"),
    ]
    if counted:
        nodes += [
            node("Shape", "past_key", "count", start=2, end=3),
            node("Cast", "count", "factor", to=FLOAT),
            node("Add", "found factor", "logits"),
        ]
    return model(
        nodes,
        [
            value("x", FLOAT, ["batch", "n", WIDTH]),
            value("bias", FLOAT, ["batch", 1, "n", "total"]),
            *(value(name, FLOAT, cache) for name in PAIRS),
        ],
        [value("logits", FLOAT, ["batch", HEADS, "n", SIZE])]
        + [value(name, FLOAT, ["batch", HEADS, "total", SIZE]) for name in PAIRS.values()],
        {"heads": np.array([0, 0, HEADS, SIZE])},
        opset=23,
    )


LAYERS = {
    "joined": joined,
    "apart": functools.partial(joined, apart=True),
    "counted": functools.partial(joined, counted=True),
    "attention": attention_layers,
    "grouped": grouped,
}


def fed(kind: str, number: int, batch: int, steps: int, past: int) -> dict[str, Any]:
    """Return what a layer takes besides its caches."""
    feeds = {"x": tokens(steps, number, batch)}
    if kind in ("joined", "apart", "counted"):
        draws = np.random.default_rng(number)
        feeds["bias"] = draws.standard_normal((batch, 1, steps, past + steps)).astype(np.float32)
    if kind == "grouped":
        feeds["attention_mask"] = mask(*[past + steps] * batch)
    return feeds


class Generation:
    """A session on the device beside one on the host; each has its caches where it is.

    Args:
        kind: Of the layer.
        batch: Sequences.
        options: The provider's.
        opens: Opens a model on the device.
    """

    def __init__(
        self, kind: str, batch: int = 1, options: Any = None, opens: Any = emulated.session
    ) -> None:
        self.kind, self.batch = kind, batch
        graph = LAYERS[kind]()
        self.session = opens(graph, provider_options=options or {})
        self._reference = tenonnx.InferenceSession(graph, providers=["cpu"])
        self._device = self.session._providers[0].device
        groups = GROUPS if kind == "grouped" else HEADS
        draws = np.random.default_rng(0)
        self.past = {
            name: draws.standard_normal((batch, groups, 7, SIZE)).astype(np.float32)
            for name in PAIRS
        }
        self.there = {
            name: OrtValue(self._device.upload(array), self._device)
            for name, array in self.past.items()
        }

    def step(self, number: int, steps: int = 1) -> None:
        """Go on, and compare everything with the host's."""
        feeds = fed(self.kind, number, self.batch, steps, self.past["past_key"].shape[2])
        binding = self.session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for name, cache in self.there.items():
            binding.bind_ortvalue_input(name, cache)
        binding.bind_output("logits")
        for name in PAIRS.values():
            binding.bind_output(name, self._device)
        self.session.run_with_iobinding(binding)
        logits, *present = binding.get_outputs()
        expected, *caches = self._reference.run(None, {**feeds, **self.past})
        np.testing.assert_allclose(logits.numpy(), expected, atol=1e-5)
        self.past = dict(zip(PAIRS, caches, strict=True))
        self.there = dict(zip(PAIRS, present, strict=True))
        self.check()

    def check(self) -> None:
        """Compare the caches, whose keys are products where heads are grouped."""
        atol = 1e-5 if self.kind == "grouped" else 0
        for name, cache in self.there.items():
            np.testing.assert_allclose(cache.numpy(), self.past[name], rtol=0, atol=atol)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Replayed]:
    """Return a list that gets an item for each call that is not repeated."""
    found: list[Replayed] = []
    done = Replayed._done

    def counted(self: Replayed, *arguments: Any) -> Any:
        found.append(self)
        return done(self, *arguments)

    monkeypatch.setattr(Replayed, "_done", counted)
    return found


@needs_compiler
@pytest.mark.parametrize("options", [{}, GRAPHED], ids=["eager", "recorded"])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_generation_says_what_the_hosts_says(kind: str, batch: int, options: Any) -> None:
    generation = Generation(kind, batch, options)
    for number, steps in enumerate((3, 1, 1, 1, 1, 2, 2, 2, 1)):
        generation.step(number, steps)


@needs_compiler
@pytest.mark.parametrize("kind", LAYERS)
def test_steps_are_repeated_however_long_a_cache_is(kind: str, calls: list[Replayed]) -> None:
    generation = Generation(kind)
    for number in range(2 * MAX_RUNS_WITHOUT_REPLAY):
        generation.step(number)
    calls.clear()
    for number in range(8):
        generation.step(number)
    assert not any(call.dynamic.caches for call in calls)


@needs_compiler
@pytest.mark.parametrize("kind", ["joined", "attention", "grouped"])
def test_a_layer_that_is_to_be_captured_is_repeated_where_its_cache_grows(
    kind: str, calls: list[Replayed]
) -> None:
    generation = Generation(kind, 1, GRAPHED)
    for number in range(2 * MAX_RUNS_WITHOUT_REPLAY):
        generation.step(number)
    calls.clear()
    for number in range(5):
        generation.step(number)
    assert not any(call.dynamic.caches for call in calls)
    recorded = [s.call for s in generation.session.plan.steps if isinstance(s.call, GraphedSteps)]
    assert [call.replays for call in recorded] == [0]


@needs_compiler
def test_a_layer_whose_cache_stays_as_long_is_captured_as_a_whole() -> None:
    generation = Generation("joined", 1, GRAPHED)
    there, past = dict(generation.there), dict(generation.past)
    for number in range(4):
        generation.there, generation.past = dict(there), dict(past)
        generation.step(number)
    (whole,) = (step.call for step in generation.session.plan.steps)
    assert whole.replays == 3


@needs_compiler
@pytest.mark.parametrize("kind", LAYERS)
def test_what_is_new_is_written_behind_what_is_there(kind: str) -> None:
    generation = Generation(kind)
    generation.step(0)
    at = [cache.value.data.ptr for cache in generation.there.values()]
    before, wanted = dict(generation.there), dict(generation.past)
    generation.step(1)
    assert [cache.value.data.ptr for cache in generation.there.values()] == at
    for name, cache in before.items():
        np.testing.assert_array_equal(cache.numpy(), wanted[name])


@needs_compiler
@pytest.mark.parametrize("kind", LAYERS)
def test_two_may_go_on_from_one_cache(kind: str) -> None:
    one, other = Generation(kind), Generation(kind)
    for number in range(5):
        one.step(number)
    other.there, other.past = dict(one.there), dict(one.past)
    for number in range(4):
        one.step(2 * number)
        other.step(2 * number + 1)
    one.check()
    other.check()


@needs_compiler
@pytest.mark.parametrize("kind", LAYERS)
def test_a_full_room_is_left_for_a_larger_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "LEAST_MORE", 4)
    monkeypatch.setattr(kv_cache, "ROOM_STEPS_MULTIPLE", 1)
    generation = Generation(kind)
    places = set()
    for number in range(24):
        generation.step(number)
        places.add(generation.there["past_key"].value.data.ptr)
    assert 3 <= len(places) <= 8


@needs_compiler
def test_heads_that_are_joined_are_no_steps() -> None:
    """Such a Concat looks like a cache to whoever does not look at its axis."""
    shape = [1, 2, 5, SIZE]
    nodes = [
        node("Concat", "past_key k", "present_key", axis=1),
        node("Concat", "past_value k", "present_value", axis=1),
        node("Attention", "q present_key present_value", "y"),
    ]
    whole = [1, HEADS, 5, SIZE]
    made = model(
        nodes,
        [value("q", FLOAT, whole), *(value(n, FLOAT, shape) for n in ("k", *PAIRS))],
        [value("y", FLOAT, whole), *(value(n, FLOAT, whole) for n in PAIRS.values())],
        opset=23,
    )
    draws = np.random.default_rng(0)
    feeds = {name: draws.standard_normal(shape).astype(np.float32) for name in ("k", *PAIRS)}
    feeds["q"] = draws.standard_normal(whole).astype(np.float32)
    expected = tenonnx.InferenceSession(made, providers=["cpu"]).run(None, feeds)
    for found, wanted in zip(emulated.session(made).run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_what_is_behind_a_cache_is_claimed_once() -> None:
    platform = emulated.FakePlatform()
    past = platform.to_device(np.zeros((2, 3, 5, 4), np.float32))
    (cache,) = kv_cache.longer(platform, [past], 2, 1)
    room = kv_cache.room_of(cache, 2)
    assert room is not None
    won: list[bool] = []
    start = threading.Barrier(8)

    def race() -> None:
        start.wait()
        won.append(room.claim(6, 1))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won.count(True) == 1


@needs_compiler
def test_a_room_goes_with_its_last_cache() -> None:
    platform = emulated.FakePlatform()
    past = platform.to_device(np.ones((1, 3, 5, 4), np.float32))
    (cache,) = kv_cache.longer(platform, [past], 2, 1)
    at = cache.data.ptr
    (longer,) = kv_cache.longer(platform, [cache], 2, 1)
    del cache
    assert kv_cache.room_of(longer, 2) is not None
    del longer
    assert at not in kv_cache._rooms
