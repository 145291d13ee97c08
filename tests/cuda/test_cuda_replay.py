"""Steps that are traced, and done again at other addresses."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import strict
from emulated import FakePlatform, provider_on, session
from kernel_calls import moved, needs_compiler

import tenonnx
from models import model, node, value
from tenonnx_cuda.capture import tracer
from tenonnx_cuda.capture.replay import MAX_CAPTURES, Replayed
from tenonnx_cuda.capture.tracer import cannot_capture, start

Array = np.ndarray[Any, Any]


def draw(seed: int, *shape: int) -> Array:
    return moved_to(np.random.default_rng(seed).standard_normal(shape), 0)


def moved_to(x: Array, remainder: int) -> Array:
    """Return a copy whose address has a remainder by 256."""
    memory = np.empty(x.nbytes + 512, np.uint8)
    first = (remainder - memory.ctypes.data) % 256
    there = np.ndarray(x.shape, x.dtype, memory, first)
    there[...] = x
    return there


def doubling(count: int, scale: float) -> Callable[[int, int], None]:
    """Return what writes ``scale * x``, as a kernel does: by addresses."""

    def work(source: int, target: int) -> None:
        read, write = (np.ctypeslib.as_array((np.ctypeslib.ctypes.c_double * count).from_address(a))
                       for a in (source, target))  # fmt: skip
        write[...] = scale * read

    return work


class Calls:
    """A call that multiplies by 2 and by 3, in an allocation each, and counts how often it ran."""

    def __init__(self, platform: FakePlatform) -> None:
        self.count, self._xp = 0, platform.xp

    def __call__(self, x: Any, more: Any = None) -> tuple[Any, ...]:
        self.count += 1
        y, z = (self._xp.empty(x.shape, x.dtype) for _ in "yz")
        start(doubling(x.size, 2.0 if more is None else float(more)), x, y)
        start(doubling(x.size, 3.0), y, z)
        return y.reshape(-1), None, z, x


def results(found: Any) -> list[Any]:
    return [None if part is None else part.held.copy() for part in found]


def test_the_third_run_is_a_repetition() -> None:
    platform = FakePlatform()
    calls = Calls(platform)
    run = Replayed(calls, platform)
    kept = []
    for turn in range(5):
        x = draw(turn, 3, 4)
        found = run(strict.wrap(x))
        kept.append((found, x))
        assert calls.count == min(turn + 1, 2)
    for (y, nothing, z, same), x in kept:  # none has overwritten another's
        np.testing.assert_array_equal(y.held, 2 * x.reshape(-1))
        assert nothing is None
        np.testing.assert_array_equal(z.held, 6 * x)
        np.testing.assert_array_equal(same.held, x)


def test_what_lies_otherwise_is_noted_by_itself() -> None:
    platform = FakePlatform()
    calls = Calls(platform)
    run = Replayed(calls, platform)
    ways = [draw(0, 3, 4), draw(1, 2, 6), moved_to(draw(2, 3, 4), 16)]
    for _ in range(4):
        for x in ways:
            np.testing.assert_array_equal(run(strict.wrap(x))[2].held, 6 * x)
    assert calls.count == 2 * len(ways)


def test_what_the_host_is_told_is_part_of_it() -> None:
    platform = FakePlatform()
    calls = Calls(platform)
    run, x = Replayed(calls, platform), draw(0, 5)
    for _ in range(4):
        for factor in (4.0, 5.0):
            found = run(strict.wrap(x), np.array(factor))
            np.testing.assert_array_equal(found[0].held, factor * x)
    assert calls.count == 4


def test_much_that_the_host_is_told_is_not_remembered() -> None:
    platform = FakePlatform()
    calls = Calls(platform)
    run, x = Replayed(lambda x, _: calls(x), platform), strict.wrap(draw(0, 5))
    for _ in range(4):
        run(x, np.zeros(1000))
    assert calls.count == 4


def adds(platform: FakePlatform) -> Callable[..., Any]:
    def call(a: Any, b: Any) -> Any:
        y = platform.xp.empty(a.shape, a.dtype)
        start(doubling(a.size, 2.0), a, y)

        def add(source: int, target: int) -> None:
            kind = np.ctypeslib.ctypes.c_double * 4
            read, write = (np.ctypeslib.as_array(kind.from_address(at)) for at in (source, target))
            write += read

        start(add, b, y)
        return y

    return call


def test_inputs_that_share_memory_are_told_from_others() -> None:
    platform = FakePlatform()
    run = Replayed(adds(platform), platform)
    whole = draw(0, 64)
    one = whole[:4]
    pairs = [(one, one)] * 3 + [(draw(1, 4), draw(2, 4)), (one, one), (draw(3, 4), draw(4, 4))]
    for a, b in pairs:
        np.testing.assert_array_equal(run(strict.wrap(a), strict.wrap(b)).held, 2 * a + b)


def test_parts_of_one_array_are_told_apart() -> None:
    platform = FakePlatform()
    run = Replayed(adds(platform), platform)
    for seed in range(5):
        whole = draw(seed, 64)
        given = whole[:4], whole[32:36]  # as pieces that Split makes
        found = run(*map(strict.wrap, given)).held
        np.testing.assert_array_equal(found, 2 * given[0] + given[1])


@pytest.mark.parametrize("how", ["copies", "says so", "takes much"])
def test_what_is_more_than_was_noted_is_not_repeated(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tracer, "MAX_TRACED_BYTES", 8 if how == "takes much" else tracer.MAX_TRACED_BYTES
    )
    platform = FakePlatform()
    count = 0

    def call(x: Any) -> Any:
        nonlocal count
        count += 1
        y = platform.xp.empty(x.shape, x.dtype)
        given = x.copy() if how == "copies" else x
        start(doubling(x.size, 2.0), given, y)
        if how == "says so":
            cannot_capture()
            y += x
        return y

    run = Replayed(call, platform)
    for turn in range(5):
        x = draw(turn, 4)
        np.testing.assert_array_equal(run(strict.wrap(x)).held, (3 if how == "says so" else 2) * x)
    assert count == 5


def test_what_is_held_for_the_notes_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = FakePlatform()
    held: list[weakref.ref[Any]] = []
    empty = strict.xp.empty

    def scarce(*arguments: Any) -> Any:
        if sum(made() is not None for made in held) == 2:
            raise MemoryError
        made = empty(*arguments)
        held.append(weakref.ref(made))
        return made

    def call(x: Any) -> Any:
        for _ in range(4):
            y = platform.xp.empty(x.shape, x.dtype)
            start(doubling(x.size, 2.0), x, y)
            x = y
        return x

    monkeypatch.setattr(strict.xp, "empty", scarce)
    run, x = Replayed(call, platform), draw(0, 4)
    for _ in range(4):
        np.testing.assert_array_equal(run(strict.wrap(x)).held, 16 * x)


def test_an_unnoted_write_is_seen() -> None:
    platform = FakePlatform()

    def call(x: Any) -> Any:
        y = platform.xp.empty(x.shape, x.dtype)
        y[...] = x
        return y

    run, x = Replayed(call, platform), strict.wrap(draw(0, 4))
    run(x)
    with pytest.raises(AssertionError, match="this is not traced"):
        run(x)


def test_few_ways_are_kept_and_buffers_are_written_to() -> None:
    platform = FakePlatform()
    calls = Calls(platform)
    run = Replayed(calls, platform)
    for _ in range(2):
        for n in range(1, MAX_CAPTURES + 2):
            run(strict.wrap(draw(0, n)))
    assert calls.count == 2 * (MAX_CAPTURES + 1)
    given = []
    written = Replayed(lambda x, _out=None: given.append(_out) or x, platform)
    x = strict.wrap(draw(0, 3))
    for out in (None, None, None, x, None):
        written(x, _out=out)
    assert given == [None, None, x]


def test_buffers_are_written_to_at_other_addresses() -> None:
    platform = FakePlatform()
    count = 0

    def call(x: Any, *, _outs: Any = None) -> Any:
        nonlocal count
        count += 1
        (y, _) = _outs or (None, None)
        # As caches are: where it would overwrite what it reads, it makes its own.
        if y is None or (y is not x and platform.xp.may_share_memory(x, y)):
            y = platform.xp.empty(x.shape, x.dtype)
        start(doubling(x.size, 2.0), x, y)
        return y, x

    run = Replayed(call, platform)
    for turn in range(4):
        x, y = draw(turn, 64), draw(9, 64)
        out = strict.wrap(y)
        assert run(strict.wrap(x), _outs=(out, None))[0] is out
        np.testing.assert_array_equal(y, 2 * x)
    assert count == 2
    whole = draw(0, 96)
    for x, y in ((whole[32:], whole[:64]), (whole[32:], whole[32:])):  # lying across, and in place
        expected = 2 * x
        found, _ = run(strict.wrap(x), _outs=(strict.wrap(y), None))
        np.testing.assert_array_equal(found.held, expected)
    assert count == 4


@needs_compiler
def test_threads_repeat_one_step_with_their_own_arrays() -> None:
    shape = (16, 8)
    made = model([node("Softmax", "x", "y")], [value("x", shape=shape)], [value("y", shape=shape)])
    platform = FakePlatform()
    opened = session(made, provider_on(platform))
    wrong = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        exact = np.exp(x.astype(np.float64))
        for _ in range(20):
            (y,) = opened.run(None, {"x": moved(x)})
            wrong.extend([] if np.allclose(y, exact / exact.sum(-1, keepdims=True)) else [seed])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_sequences_are_left_alone() -> None:
    nodes = [
        node("SequenceConstruct", "x x", "s"),
        node("Identity", "s", "t"),
        node("SequenceAt", "t i", "y"),
    ]
    made = model(nodes, [value("x", shape=(4,))], [value("y", shape=(4,))], {"i": np.array(1)})
    opened = session(made, graph_optimization_level=0)
    for seed in range(4):
        x = draw(seed, 4).astype(np.float32)
        np.testing.assert_array_equal(opened.run(None, {"x": x})[0], x)


def network() -> Any:
    """Products, norms, attention, a chain and views, of any number of rows."""
    draws = np.random.default_rng(0)
    weights = {
        name: (draws.standard_normal(shape) / 4).astype(np.float32)
        for name, shape in {"W": (32, 96), "V": (32, 32), "b": (32,), "s": (32,)}.items()
    }
    nodes = [
        node("Mul", "x x", "x2"),
        node("Tanh", "x2", "h"),
        node("MatMul", "h W", "qkv"),
        node("Split", "qkv", "q k v", axis=-1, num_outputs=3),
        *(node("Reshape", f"{n} heads", f"{n}4") for n in "qkv"),
        *(node("Transpose", f"{n}4", f"{n}h", perm=[0, 2, 1, 3]) for n in "qkv"),
        node("Attention", "qh kh vh", "mixed", is_causal=1),
        node("Transpose", "mixed", "together", perm=[0, 2, 1, 3]),
        node("Reshape", "together whole", "a"),
        node("MatMul", "a V", "p"),
        node("Add", "p b", "pb"),
        node("Add", "pb x", "r"),
        node("LayerNormalization", "r s b", "n"),
        node("Softmax", "n", "y"),
    ]
    shapes = {"heads": np.array([0, 0, 4, 8]), "whole": np.array([0, 0, 32])}
    rows = ("batch", "steps", 32)
    outputs = [value("y", shape=rows), value("r", shape=rows)]
    return model(nodes, [value("x", shape=rows)], outputs, {**weights, **shapes}, opset=23)


def check_network(opened: tenonnx.InferenceSession, tolerance: float = 1e-5) -> None:
    """Run it with two shapes in turn, the results of all runs together being compared last."""
    reference = tenonnx.InferenceSession(network(), providers=["cpu"])
    kept = []
    for turn in range(5):
        for shape in ((1, 3, 32), (2, 9, 32)):
            x = np.random.default_rng(turn).standard_normal(shape).astype(np.float32)
            kept.append((x, opened.run(None, {"x": x})))
    for x, found in kept:
        for actual, expected in zip(found, reference.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(actual, expected, atol=tolerance)


@needs_compiler
@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "recorded"])
def test_a_network_goes_on_as_it_began(graphs: bool) -> None:
    own = {"enable_cuda_graph": str(int(graphs))}
    check_network(session(network(), provider_on(FakePlatform()), provider_options=own))


@needs_compiler
def test_no_kernel_of_a_session_is_chosen_anew() -> None:
    shape, platform = (16, 8), FakePlatform()
    nodes = [node("Mul", "x x", "h"), node("Tanh", "h", "t"), node("Softmax", "t", "s"),
             node("Transpose", "s", "y", perm=[1, 0])]  # fmt: skip
    made = model(nodes, [value("x", shape=shape)], [value("y", shape=shape[::-1])])
    opened = session(made, provider_on(platform))
    asked = []
    for _ in range(4):
        opened.run(None, {"x": draw(0, *shape).astype(np.float32)})
        asked.append(len(platform.compiled))
    assert asked == [2, 4, 4, 4]
