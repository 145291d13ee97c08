"""Whole generations on the stand-in for a device: caches in place, recorded once."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import emulated
import numpy as np
import onnx
import pytest
import strict
from kernel_calls import chosen, needs_compiler

import tenonnx
from models import FLOAT, INT64, model, node, value
from tenonnx.interface.ort_value import OrtValue
from tenonnx_cuda.capture.graph import GraphedSteps

EXAMPLE = Path(__file__).parents[2] / "examples" / "generate" / "model" / "model.onnx"

HEADS, GROUPS, SIZE = 4, 2, 16
WIDTH = HEADS * SIZE

GRAPHED = {"enable_cuda_graph": "1"}


def grouped(angles: int = 64, *, positioned: bool = False) -> Any:
    """A layer as exporters of Llama's kin write it, which takes lengths from the mask."""
    draws = np.random.default_rng(0)
    turns = draws.standard_normal((angles, SIZE // 2))
    packed = (HEADS + 2 * GROUPS) * SIZE
    nodes = [
        node("Relu", "x", "h"),
        node("MatMul", "h W", "qkv"),
        node("ReduceSum", "attention_mask axes", "count", keepdims=0),
        node("Sub", "count one", "last"),
        node("Cast", "last", "seqlens", to=onnx.TensorProto.INT32),
        node("Shape", "attention_mask", "shape"),
        node("Gather", "shape index", "length", axis=0),
        node("Cast", "length", "total", to=onnx.TensorProto.INT32),
        node(
            "GroupQueryAttention",
            "qkv _ _ past_key past_value seqlens total cos sin" + " ids" * positioned,
            "y present_key present_value", domain="com.microsoft", num_heads=HEADS,
            kv_num_heads=GROUPS, do_rotary=1,
        ),
        node("MatMul", "y V", "logits"),
    ]  # fmt: skip
    cache = ["batch", GROUPS, "past", SIZE]
    return model(
        nodes,
        [
            value("x", FLOAT, ["batch", "steps", WIDTH]),
            value("attention_mask", INT64, ["batch", "total"]),
            value("past_key", FLOAT, cache),
            value("past_value", FLOAT, cache),
            *([value("ids", INT64, ["batch", "steps"])] if positioned else []),
        ],
        [
            value("logits", FLOAT, ["batch", "steps", 8]),
            value("present_key", FLOAT, cache),
            value("present_value", FLOAT, cache),
        ],
        {
            "W": draws.standard_normal((WIDTH, packed)).astype(np.float32) / 8,
            "V": draws.standard_normal((WIDTH, 8)).astype(np.float32) / 8,
            "cos": np.cos(turns).astype(np.float32),
            "sin": np.sin(turns).astype(np.float32),
            "axes": np.array([1]),
            "one": np.array(1),
            "index": np.array(1),
        },
    )


class Bound:
    """A session whose caches are bound to themselves, on its device or the host.

    Args:
        session: The session.
        caches: Names of inputs and the outputs that continue them.
        shape: Of every cache.
    """

    def __init__(
        self, session: tenonnx.InferenceSession, caches: dict[str, str], shape: tuple[int, ...]
    ) -> None:
        self.session = session
        self._binding = session.io_binding()
        device = session._providers[0].device
        self.caches = {}
        for past, present in caches.items():
            there = OrtValue(device.upload(np.zeros(shape, np.float32)), device)
            self.caches[past] = there
            self._binding.bind_ortvalue_input(past, there)
            self._binding.bind_ortvalue_output(present, there)

    def __call__(self, **feeds: Any) -> Any:
        for name, array in feeds.items():
            self._binding.bind_cpu_input(name, array)
        self._binding.bind_output("logits")
        self.session.run_with_iobinding(self._binding)
        *_, logits = self._binding.get_outputs()  # it was bound last
        return logits.numpy()

    @property
    def replays(self) -> int:
        calls = (step.call for step in self.session.plan.steps)
        return sum(call.replays for call in calls if isinstance(call, GraphedSteps))


PAIRS = {"past_key": "present_key", "past_value": "present_value"}


def tokens(count: int, seed: int = 0, batch: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal((batch, count, WIDTH)).astype(np.float32)


def mask(*counts: int) -> Any:
    total = max(counts)
    return np.array([[1] * n + [0] * (total - n) for n in counts])


@needs_compiler
@pytest.mark.parametrize("options", [{}, GRAPHED], ids=["eager", "recorded"])
def test_a_generation_is_captured_once_and_copies_no_cache(options: dict[str, str]) -> None:
    shape = (1, GROUPS, 48, SIZE)
    run = Bound(emulated.session(grouped(), provider_options=options), PAIRS, shape)
    reference = tenonnx.InferenceSession(grouped(), providers=["cpu"])
    expected = {name: np.zeros(shape, np.float32) for name in PAIRS}
    length = 0
    for number, steps in enumerate((5, *[1] * 12)):
        x = tokens(steps, number)
        length += steps
        feeds = {"x": x, "attention_mask": mask(length)}
        logits = run(**feeds)
        y, *present = reference.run(None, {**feeds, **expected})
        expected = dict(zip(PAIRS, present, strict=True))
        np.testing.assert_allclose(logits, y, atol=1e-5)
    for name, cache in run.caches.items():
        np.testing.assert_allclose(cache.numpy(), expected[name], atol=1e-5)
    # The prompt runs once; the first token is run, the second is recorded, as all others are.
    assert run.replays == (11 if options else 0)


@needs_compiler
def test_positions_that_are_given_are_captured_too() -> None:
    source, shape = grouped(positioned=True), (1, GROUPS, 48, SIZE)
    run = Bound(emulated.session(source, provider_options=GRAPHED), PAIRS, shape)
    reference = tenonnx.InferenceSession(source, providers=["cpu"])
    expected = {name: np.zeros(shape, np.float32) for name in PAIRS}
    length = 0
    # A prompt, of which the first position counts; its like after it, of which all do; tokens.
    for steps, first in ((3, 7), (3, 11), (3, 2), *((1, n) for n in (20, 21, 22, 23, 9))):
        x, ids = tokens(steps, length), first + np.arange(steps)[None] * (1 if length else 5)
        length += steps
        feeds = {"x": x, "attention_mask": mask(length), "ids": ids}
        logits = run(**feeds)
        y, *present = reference.run(None, {**feeds, **expected})
        expected = dict(zip(PAIRS, present, strict=True))
        np.testing.assert_allclose(logits, y, atol=1e-5)
    assert run.replays == 5


@needs_compiler
@pytest.mark.parametrize("options", [{}, GRAPHED], ids=["eager", "recorded"])
def test_a_step_makes_nothing_as_large_as_a_cache(options: dict[str, str]) -> None:
    capacity = 4096
    source = grouped(angles=capacity)
    run = Bound(
        emulated.session(source, provider_options=options), PAIRS, (1, GROUPS, capacity, SIZE)
    )
    memory = {name: cache.value.held.ctypes.data for name, cache in run.caches.items()}
    for length in range(1, 5):
        run(x=tokens(1, length), attention_mask=mask(length))
    log = emulated.EmulatedProvider.where.log
    log.clear()
    tracemalloc.start()
    run(x=tokens(1), attention_mask=mask(5))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < capacity * GROUPS * SIZE * 4 / 2
    # Only the token and the mask go there, and only the logits come back.
    assert [entry[0] for entry in log] == ["to_device", "to_device", "to_host"]
    assert memory == {name: cache.value.held.ctypes.data for name, cache in run.caches.items()}


@needs_compiler
def test_a_cache_that_is_bound_anew_is_captured_anew() -> None:
    session = emulated.session(grouped(), provider_options=GRAPHED)
    found = []
    for _ in range(2):
        run = Bound(session, PAIRS, (1, GROUPS, 24, SIZE))
        before = run.replays
        lengths = range(1, 6)
        found.append([run(x=tokens(1, n), attention_mask=mask(n)) for n in lengths])
        assert run.replays - before == 4
    np.testing.assert_array_equal(*found)


@needs_compiler
def test_a_cache_without_room_grows_and_numbers_beyond_it_are_not_taken_for_fitting() -> None:
    session = emulated.session(grouped(), provider_options=GRAPHED)
    reference = tenonnx.InferenceSession(grouped(), providers=["cpu"])
    past = {name: np.zeros((2, GROUPS, 4, SIZE), np.float32) for name in PAIRS}
    for length in (2, 3, 4, 5, 4, 3):
        feeds = {"x": tokens(1, length, 2), "attention_mask": mask(length, 2), **past}
        for actual, wanted in zip(
            session.run(None, feeds), reference.run(None, feeds), strict=True
        ):
            np.testing.assert_allclose(actual, wanted, atol=1e-5)


@needs_compiler
def test_sequences_of_several_lengths_start_with_one_padded_prompt() -> None:
    shape = (2, GROUPS, 32, SIZE)
    run = Bound(emulated.session(grouped(), provider_options=GRAPHED), PAIRS, shape)
    reference = tenonnx.InferenceSession(grouped(), providers=["cpu"])
    past = {name: np.zeros(shape, np.float32) for name in PAIRS}
    counts = np.array([6, 4])
    for number, steps in enumerate((6, 1, 1, 1, 1)):
        counts = counts + (steps if number else 0)
        feeds = {"x": tokens(steps, number, 2), "attention_mask": mask(*counts)}
        logits = run(**feeds)
        y, *present = reference.run(None, {**feeds, **past})
        past = dict(zip(PAIRS, present, strict=True))
        last = [5, 3] if not number else [0, 0]
        for sequence, position in enumerate(last):
            np.testing.assert_allclose(logits[sequence, position], y[sequence, position], atol=1e-5)
    assert run.replays == 3


def attention_layers() -> Any:
    """Attention whose cache is its own past input, of opset 23."""
    nodes = [
        node("Relu", "x", "h"),
        node(
            "Attention", "h x x _ past_key past_value", "y present_key present_value",
            q_num_heads=HEADS, kv_num_heads=HEADS, is_causal=1,
        ),
        node("Neg", "y", "logits"),
    ]  # fmt: skip
    past = ["batch", HEADS, "past", SIZE]
    return model(
        nodes,
        [value("x", FLOAT, ["batch", "n", WIDTH])] + [value(name, FLOAT, past) for name in PAIRS],
        [value("logits", FLOAT, ["batch", "n", WIDTH])]
        + [value(name, FLOAT, ["batch", HEADS, "total", SIZE]) for name in PAIRS.values()],
        opset=23,
    )


@needs_compiler
@pytest.mark.parametrize("options", [{}, GRAPHED], ids=["eager", "recorded"])
def test_a_growing_cache_is_written_once_where_it_is_bound(options: dict[str, str]) -> None:
    session = emulated.session(attention_layers(), provider_options=options)
    reference = tenonnx.InferenceSession(attention_layers(), providers=["cpu"])
    device = session._providers[0].device
    past = {name: np.random.default_rng(1).standard_normal((1, HEADS, 7, SIZE)).astype(np.float32)
            for name in PAIRS}  # fmt: skip
    binding = session.io_binding()
    for name, array in past.items():
        binding.bind_ortvalue_input(name, OrtValue(device.upload(array), device))
    present = {}
    for name in PAIRS.values():
        there = device.upload(np.full((1, HEADS, 9, SIZE), np.nan, np.float32))
        present[name] = OrtValue(there, device)
        binding.bind_ortvalue_output(name, present[name])
    binding.bind_output("logits")
    for number in range(4):
        x = tokens(2, number)
        binding.bind_cpu_input("x", x)
        session.run_with_iobinding(binding)
        expected = reference.run(None, {"x": x, **past})
        (logits,) = (v for v in binding.get_outputs() if v not in present.values())
        np.testing.assert_allclose(logits.numpy(), expected[0], atol=1e-5)
        for got, wanted in zip(present.values(), expected[1:], strict=True):
            np.testing.assert_array_equal(got.numpy(), wanted)


@needs_compiler
@pytest.mark.parametrize("options", [{}, GRAPHED], ids=["eager", "recorded"])
def test_the_example_generates_on_the_device_as_on_the_host(options: dict[str, str]) -> None:
    session = emulated.session(str(EXAMPLE), provider_options=options)
    reference = tenonnx.InferenceSession(EXAMPLE, providers=["cpu"])
    names = [arg.name for arg in session.get_inputs()][2:]
    pairs = {name: name.replace("past_key_values", "present") for name in names}
    _, groups, _, size = session.get_inputs()[2].shape
    shape = (1, groups, 32, size)
    run = Bound(session, pairs, shape)
    past = {name: np.zeros(shape, np.float32) for name in names}
    length = 0
    for steps in (3, 1, 1, 1, 1):
        ids = np.arange(length, length + steps)[None] * 37 % 1000
        feeds = {"input_ids": ids, "position_ids": np.arange(length, length + steps)[None]}
        length += steps
        logits = run(**feeds)
        y, *present = reference.run(None, {**feeds, **past})
        past = dict(zip(names, present, strict=True))
        np.testing.assert_allclose(logits, y, atol=2e-3, rtol=2e-3)
    if options:
        assert run.replays >= 3


@needs_compiler
@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize(("dtype", "inner"), [
    (np.int8, 3), (np.float16, 8), (np.float32, 5), (np.float64, 2), (np.int64, 1),
], ids=str)  # fmt: skip
def test_steps_are_written_into_a_cache_or_a_copy(dtype: Any, inner: int, mode: str) -> None:
    draws = np.random.default_rng(0)
    past = (100 * draws.standard_normal((3, 2, 7, inner))).astype(dtype)
    update = (100 * draws.standard_normal((3, 2, 4, inner))).astype(dtype)
    firsts = np.array([0, 2, 3] if mode == "linear" else [5, 0, 13])
    expected = past.copy()
    for b, first in enumerate(firsts):
        for step in range(4):
            expected[b, :, (first + step) % 7] = update[b, :, step]
    run = chosen("TensorScatter", 24, axis=2, mode=mode)
    kept = past.copy()
    np.testing.assert_array_equal(run(past, update, firsts), expected)
    np.testing.assert_array_equal(past, kept)


@needs_compiler
def test_a_buffer_that_is_the_cache_in_part_is_written_last() -> None:
    """Its beginning is read until then."""
    session = emulated.session(attention_layers())
    device = session._providers[0].device
    past = np.random.default_rng(1).standard_normal((1, HEADS, 7, SIZE)).astype(np.float32)
    expected = tenonnx.InferenceSession(attention_layers(), providers=["cpu"]).run(
        None, {"x": tokens(2), **dict.fromkeys(PAIRS, past)}
    )
    binding = session.io_binding()
    binding.bind_cpu_input("x", tokens(2))
    for name, present in PAIRS.items():
        memory = np.zeros(HEADS * 9 * SIZE, np.float32)
        memory[: past.size] = past.reshape(-1)
        whole, part = memory.reshape(1, HEADS, 9, SIZE), memory[: past.size].reshape(past.shape)
        binding.bind_ortvalue_input(name, OrtValue(strict.StrictArray(part), device))
        binding.bind_ortvalue_output(present, OrtValue(strict.StrictArray(whole), device))
    binding.bind_output("logits")
    session.run_with_iobinding(binding)
    *present, logits = binding.get_outputs()
    np.testing.assert_allclose(logits.numpy(), expected[0], atol=1e-5)
    for got, wanted in zip(present, expected[1:], strict=True):
        np.testing.assert_array_equal(got.numpy(), wanted)
