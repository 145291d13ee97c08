"""Steps that machine code does again: what they compute, for which arrays, and what they keep."""

from __future__ import annotations

import itertools
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from captured_models import WEIGHTS, WIDTH, given, nothing, only_replays, opened, same, uncaptured
from running import captures, cells, floats, require_kernels, session

import tenonnx
from models import node
from tenonnx.interface.profiling import kernel_name
from tenonnx_cpu.capture import capturable, recent, span
from tenonnx_cpu.capture.captured_run import CapturedRun

require_kernels()


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_the_same(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step by machine code: for shapes that come once, again, or in turns."""
    plain, one = uncaptured(monkeypatch, threads), opened(threads)
    assert not captures(plain)
    shapes = [(2, 5)] * 5 + [(1, 1)] * 4 + [(2, 5), (1, 1), (3, 9), (40, 17)] * 4 + [(4, 4)]
    for seed, shape in enumerate(shapes):
        feeds = given(shape, seed)
        same(one.run(None, feeds), plain.run(None, feeds))
    found = captures(one)
    assert len(found) == 1 < 10 <= len(one._plan.steps)
    assert set(found) == {4}, "the first one, and those that came again"


@pytest.mark.parametrize("shape", [(2, 5), (1, 1)])
def test_the_second_run_is_machine_codes(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of axes of one element, too, whose strides machine code makes otherwise than numpy."""
    one = opened()
    wanted = one.run(None, given(shape))
    assert set(captures(one)) == {1}
    for tracer in (capturable._Tracer, span.Tracer):
        monkeypatch.setattr(tracer, "__call__", nothing)
    for _ in range(2):
        same(one.run(None, given(shape)), wanted)


def test_arrays_that_lie_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, one = uncaptured(monkeypatch), opened()
    feeds = given((2, 5))
    for _ in range(4):
        one.run(None, feeds)
    raw = np.zeros(feeds["x"].nbytes + 1, np.uint8)
    moved = raw[1:].view(np.float32).reshape(feeds["x"].shape)
    moved[:] = feeds["x"]
    wide = floats(2, 5, 2 * WIDTH, seed=9)
    for x in (moved, wide[..., ::2], feeds["x"][:, ::-1], np.asfortranarray(feeds["x"])):
        other = {"x": x, "flat": feeds["flat"]}
        same(one.run(None, other), plain.run(None, other))


def test_threads_with_shapes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, one = uncaptured(monkeypatch), opened(2)
    problems = [given((n % 3 + 1, n + 1), seed=n) for n in range(6)]
    wanted = [plain.run(None, feeds) for feeds in problems]
    failures: list[BaseException] = []

    def work(feeds: Any, expected: Any) -> None:
        try:
            for _ in range(150):
                for found, right in zip(one.run(None, feeds), expected, strict=True):
                    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(problems, wanted, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_new_thread_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it has no scratch memory yet; a server may start a thread for each request."""
    one, feeds = opened(), given((2, 5))
    first = [one.run(None, feeds) for _ in range(2)]
    (cell,) = cells(one)
    assert cell.scratch
    monkeypatch.setattr(cell[1], "_call", None)
    found: list[Any] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(one.run(None, feeds)))
        thread.start()
        thread.join()
    assert len(found) == 3
    for each in found:
        same(each, first[1])


def test_profiles_name_what_is_captured() -> None:
    names = {kernel_name(step.call) for step in opened()._plan.steps}
    assert "tenonnx_cpu.elementwise.program.ProgramCall.launch" in names
    assert not any("Cell" in name or "replay" in name for name in names)


def test_errors_name_the_node() -> None:
    one = opened()
    for _ in range(4):
        one.run(None, given((2, 5)))
    with pytest.raises(tenonnx.RuntimeException, match=r"Gemm.*7"):
        one.run(None, {"x": given((2, 5))["x"], "flat": floats(5, 7)})


def test_arrays_of_other_processes() -> None:
    """An unpickled array has a dtype object of its own; numpy's longlong is another int64."""
    one = opened()
    feeds = given((2, 5))
    (y, *_) = one.run(None, feeds)
    unpickled = pickle.loads(pickle.dumps(feeds))
    assert unpickled["x"].dtype is not feeds["x"].dtype
    with only_replays():
        np.testing.assert_array_equal(one.run(None, unpickled)[0], y)


def test_a_first_array_of_another_process() -> None:
    one = opened()
    one.run(None, pickle.loads(pickle.dumps(given((2, 5)))))
    with only_replays():
        one.run(None, given((2, 5)))


def test_more_threads_than_servers_have() -> None:
    """Each of 40 threads, as anyio has, replays what was captured."""
    one = opened()
    feeds = given((2, 5))
    (wanted, *_) = one.run(None, feeds)
    all_there, found = threading.Barrier(40), []

    def work() -> None:
        one.run(None, feeds)  # which gets the thread its scratch memory
        all_there.wait()
        found.append(one.run(None, feeds)[0])
        all_there.wait()

    threads = [threading.Thread(target=work) for _ in range(40)]
    with only_replays():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 40
    for each in found:
        np.testing.assert_array_equal(each, wanted)


def test_chains_that_read_views() -> None:
    nodes = [
        node("Split", "x", "a b", axis=1, num_outputs=2),
        node("Sigmoid", "a", "g"),
        node("Mul", "g b", "y"),
    ]
    one = session(nodes, {"x": floats(5, 128)}, "y")
    for seed in range(5):
        x = floats(5, 128, seed=seed)
        a, b = np.split(x.astype(np.float64), 2, 1)
        (y,) = one.run(None, {"x": x})
        np.testing.assert_allclose(y, b / (1 + np.exp(-a)), rtol=1e-5)
    assert captures(one) == [1]


@pytest.mark.parametrize("kind", [np.float32, bool])
@pytest.mark.parametrize("past", [0, 7])
def test_attention_over_a_cache_with_a_mask(
    kind: Any, past: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = {"q": floats(2, 4, 1, 8), "k": floats(2, 2, 1, 8, seed=1), "v": floats(2, 2, 1, 8)}
    feeds |= {"pk": floats(2, 2, past, 8, seed=2), "pv": floats(2, 2, past, 8, seed=3)}
    nodes = [node("Attention", "q k v m pk pv", "y keys values")]

    def masked(seed: int) -> dict[str, Any]:
        mask = floats(2, 1, 1, past + 1, seed=seed)
        mask[..., 0] = 1
        return {**feeds, "m": mask if kind is np.float32 else mask > 0}

    kinds = {} if kind is np.float32 else {"m": 9}
    one = session(nodes, masked(0), "y keys values", opset=23, kinds=kinds)
    with monkeypatch.context() as patch:
        patch.setattr(capturable, "COUNTED", False)
        plain = session(nodes, masked(0), "y keys values", opset=23, kinds=kinds)
    for seed in range(4):
        same(one.run(None, masked(seed)), plain.run(None, masked(seed)))
    assert captures(one) == [1]


def test_expanded_arrays() -> None:
    """View that nobody may write to, of an input and of a constant."""
    nodes = [
        node("Shape", "x", "of"),
        node("Expand", "x_row of", "wide"),
        node("Expand", "row of", "rows"),
        node("Softmax", "x", "soft"),
        node("Mul", "soft rows", "y"),
    ]
    weights = {"row": floats(1, 32, seed=1)}
    for x in (floats(3, 32), floats(5, 32)):
        feeds = {"x": x, "x_row": x[:1].copy()}
        one = session(nodes, feeds, "wide rows y", weights)
        first = one.run(None, feeds)
        for _ in range(3):
            same(one.run(None, feeds), first)
        assert captures(one)[-1] == 1
        np.testing.assert_array_equal(first[0], np.broadcast_to(x[:1], x.shape))
        np.testing.assert_array_equal(first[1], np.broadcast_to(weights["row"], x.shape))


def test_steps_whose_shapes_change_leave_the_others() -> None:
    """As a cache that gets longer from run to run."""
    nodes = [
        *(node("Softmax", f"h{n}", f"h{n + 1}") for n in range(4)),
        node("Concat", "past h4", "present", axis=0),
        node("Softmax", "present", "seen"),
        node("Softmax", "h4", "z"),
    ]
    feeds = {"h0": floats(1, 64), "past": floats(3, 64)}
    one = session(nodes, feeds, "seen z")
    for length in range(3, 9):
        feeds["past"] = floats(length, 64, seed=length)
        seen, z = one.run(None, feeds)
        assert seen.shape == (length + 1, 64)
    (cell,) = cells(one)
    inside = [getattr(step.call, "__self__", None) for step in cell[1].untraced_steps]
    assert [len(each) // 2 - 1 for each in inside if type(each[1]) is span.Tracer] == [1]
    for length in (5, 9):
        feeds["past"] = floats(length, 64, seed=length)
        again, also = one.run(None, feeds)
        np.testing.assert_array_equal(also, z)
        joined = np.concatenate([feeds["past"], also * 0])
        assert again.shape == joined.shape


def test_a_step_that_is_never_captured_is_not_traced_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries, feeds = [], {"x": floats(4, 4).astype(np.float64)}
    begin = CapturedRun.__init__
    monkeypatch.setattr(
        CapturedRun, "__init__", lambda self, *given: tries.append(1) or begin(self, *given)
    )
    one = session([node("MatMul", "x x", "y")], feeds, "y", kinds={"x": 11, "y": 11})
    for _ in range(9):
        (found,) = one.run(None, feeds)
        np.testing.assert_array_equal(found, feeds["x"] @ feeds["x"])
    assert len(tries) == 3


def test_many_steps_are_captured_by_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of many captures none, and some runs later all of them are replayed."""
    monkeypatch.setattr(recent, "MAX_STEPS", 8)
    monkeypatch.setattr(span, "MAX_SPAN_STEPS", 4)
    names = ["x", *(f"h{n}" for n in range(39)), "y"]
    nodes = [
        node(("Softmax", "Relu", "MatMul")[n % 3], f"{x} w" if n % 3 == 2 else x, y)
        for n, (x, y) in enumerate(itertools.pairwise(names))
    ]
    feeds = {"x": floats(3, WIDTH)}
    one = session(nodes, feeds, "y", {"w": WEIGHTS["w"]})
    wanted, found = one.run(None, feeds), []
    for _ in range(5):
        found.append(sum(captures(one)))
        same(one.run(None, feeds), wanted)
    assert found[0] == 0 < found[1] < found[2] < found[-1]
    with only_replays():
        same(one.run(None, feeds), wanted)
