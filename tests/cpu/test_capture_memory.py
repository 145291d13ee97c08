"""The memory of captures: their number and size, arenas, scratch memory and results."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from captured_models import WIDTH, given, nothing, opened, same, uncaptured
from running import captures, cells, floats, require_kernels, session

import tenonnx
from models import node
from tenonnx_cpu import buffers
from tenonnx_cpu.capture import capturable, captured_run, span
from tenonnx_cpu.jit import scratch

require_kernels()


def blocks() -> list[int]:
    """Return the bytes of each array that has had memory lately, in use or not."""
    return [end - begin for chunk in buffers._pool.chunks for begin, end, _ in chunk._blocks]


@pytest.mark.parametrize("count", [63, 64, 120, 300])
def test_spans_of_many_inputs_and_outputs_are_halved(count: int) -> None:
    """Each part has room for what it reads and makes, and is captured in the first run."""
    feeds = {f"x{n}": floats(3, WIDTH, seed=n) for n in range(0, count, 2)}
    feeds["x"] = floats(3, WIDTH)
    others = {n: f"x{n}" if n % 2 == 0 else "x" for n in range(count)}
    nodes = [node("Sub", f"x {each}", f"y{n}") for n, each in others.items()]
    last = node("Sum", " ".join(f"y{n}" for n in range(count)), "total")
    outputs = " ".join(f"y{n}" for n in range(count))
    one = session([*nodes, last], feeds, f"{outputs} total")
    for _ in range(3):
        *found, total = one.run(None, feeds)
        for n, y in enumerate(found):
            np.testing.assert_array_equal(y, feeds["x"] - feeds[others[n]])
        np.testing.assert_allclose(total, sum(found), rtol=1e-4, atol=1e-4)
    assert len(cells(one)) < 20
    assert all(captures(one))


def test_spans_without_room_for_their_memory_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, one = uncaptured(monkeypatch), opened()
    monkeypatch.setattr(captured_run, "MAX_ARENA_BYTES", 1024)
    traced: list[int] = []
    original = span.Tracer._capture
    monkeypatch.setattr(span.Tracer, "_capture", lambda *a: traced.append(1) or original(*a))
    for seed in range(12):
        feeds = given((2, 5), seed)
        same(one.run(None, feeds), plain.run(None, feeds))
    assert 1 < len(traced) < 12
    (cell,) = cells(one)
    halves = [getattr(each.call, "__self__", None) for each in cell[1].untraced_steps]
    assert any(len(half) > 2 for half in halves if isinstance(half, capturable.Cell))


def run_twice(one: tenonnx.InferenceSession, length: int) -> None:
    for _ in range(2):
        one.run(None, given((1, length)))


def test_captures_are_few_and_those_in_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was replayed longest ago goes first."""
    monkeypatch.setattr(capturable, "MAX_CAPTURES", 4)
    one = opened()
    for length in range(1, 12):
        run_twice(one, length)
        one.run(None, given((1, 1)))
    assert set(captures(one)) == {4}
    (cell,) = cells(one)
    kept = [key[0][0][1] for key in cell.keys]
    assert sorted(kept) == [1, 9, 10, 11]
    monkeypatch.setattr(cell[1], "_call", nothing)
    for length in kept:
        run_twice(one, length)


def test_captures_have_room_for_some_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened()
    run_twice(one, 1)
    (cell,) = cells(one)
    size = sum(array.nbytes for array in cell[2:4])
    monkeypatch.setattr(capturable, "MAX_CAPTURE_BYTES", 3 * size)
    for length in range(2, 12):
        run_twice(one, length)
    assert captures(one) == [3]


def test_capturing_keeps_no_buffers() -> None:
    """Arrays that are made to compare a step's answers serve no run."""
    one = session([node("Relu", "x", "y")], {"x": floats(1 << 16)}, "y")
    buffers._pool.chunks, buffers._pool.bytes = (), 0
    (kept,) = one.run(None, {"x": floats(1 << 16)})
    assert captures(one) == [1]
    assert blocks() == [kept.nbytes]


def test_results_have_memory_of_their_own() -> None:
    one = opened()
    feeds = given((2, 5))
    kept = [one.run(None, feeds) for _ in range(8)]
    arrays = [array for results in kept for array in results]
    for number, array in enumerate(arrays):
        assert array.flags.writeable
        assert not any(np.may_share_memory(array, other) for other in arrays[:number])
    for results in kept[1:]:
        same(results, kept[0])


def test_nothing_of_a_run_is_kept() -> None:
    one = opened()
    for _ in range(6):
        feeds = given((2, 5))
        gone = [weakref.ref(array) for array in feeds.values()]
        gone += [weakref.ref(array) for array in one.run(None, feeds)]
        del feeds
        assert not any(array() is not None for array in gone)


def test_a_session_goes_with_its_captures() -> None:
    one = opened()
    for _ in range(4):
        one.run(None, given((2, 5)))
    cell = cells(one)[0]
    gone = weakref.ref(one)
    tracer = weakref.ref(cell[1])
    del one, cell
    gc.collect()
    assert gone() is None
    assert tracer() is None


def turning() -> tuple[Any, dict[str, Any]]:
    """Return a step whose kernel may refuse, and its inputs."""
    feeds = {
        "x": floats(1, 2, 3, 8), "cos": floats(9, 4), "sin": floats(9, 4, seed=1),
        "ids": np.array([[0, 4, 8]]),
    }  # fmt: skip
    one = session([node("RotaryEmbedding", "x cos sin ids", "y")], feeds, "y", opset=23,
                  kinds={"ids": 7})  # fmt: skip
    return one, feeds


def test_what_a_kernel_refuses_after_it_was_captured() -> None:
    one, feeds = turning()
    for _ in range(5):
        one.run(None, feeds)
    assert captures(one) == [1]
    for wrong in (-1, 9):
        feeds["ids"] = np.array([[0, 4, wrong]])
        with pytest.raises(tenonnx.RuntimeException, match=str(wrong)):
            one.run(None, feeds)


def test_more_scratch_memory_than_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    one, feeds = turning()
    (first,) = one.run(None, feeds)
    monkeypatch.setattr(scratch, "KEPT", 0)
    monkeypatch.setattr(scratch, "_local", threading.local())
    for _ in range(4):
        assert one.run(None, feeds)[0].tobytes() == first.tobytes()


def test_what_steps_exchange_shares_memory() -> None:
    nodes = [node("Softmax", f"h{n}", f"h{n + 1}") for n in range(8)]
    feeds = {"h0": floats(64, 256)}
    one = session(nodes, feeds, "h8")
    for _ in range(2):
        one.run(None, feeds)
    buffers._pool.chunks, buffers._pool.bytes = (), 0
    (kept,) = one.run(None, feeds)
    assert 2 * kept.nbytes < sum(blocks()) < 4 * kept.nbytes
