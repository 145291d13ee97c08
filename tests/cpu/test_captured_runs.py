"""Steps that machine code does again: what they compute, for which arrays, and what they keep."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from running import captures, cells, floats, require_kernels, session

import tenonnx
from models import node
from tenonnx.interface.profiling import kernel_name
from tenonnx_cpu import buffers
from tenonnx_cpu.capture import capturable, span
from tenonnx_cpu.capture.captured_call import capture, repeats
from tenonnx_cpu.capture.launch import Launch, fix
from tenonnx_cpu.jit import runtime, scratch
from tenonnx_cpu.jit.code import code_object

require_kernels()
pytestmark = pytest.mark.skipif(not code_object.SUPPORTED, reason="numba calls kernels here")

WIDTH = 24
WEIGHTS = {
    "w": floats(WIDTH, WIDTH, seed=1, scale=0.2),
    "b": floats(WIDTH, seed=2),
    "scale": floats(WIDTH, seed=3),
    "split": np.array([0, 0, 4, 6]),
    "join": np.array([0, 0, -1]),
}
NODES = [
    node("MatMul", "x w", "product"),
    node("Add", "product b", "sum"),
    node("Relu", "sum", "rest"),
    node("Add", "rest x", "skip"),
    node("LayerNormalization", "skip scale b", "norm"),
    *(
        step
        for name in ("norm", "skip", "rest")
        for step in (
            node("Reshape", f"{name} split", f"{name}_heads"),
            node("Transpose", f"{name}_heads", f"{name}_turned", perm=[0, 2, 1, 3]),
        )
    ),
    node("Attention", "norm_turned skip_turned rest_turned", "seen"),
    node("Transpose", "seen", "back", perm=[0, 2, 1, 3]),
    node("Reshape", "back join", "joined"),
    node("Softmax", "joined", "soft"),
    node("Gemm", "flat w b", "line"),
    node("Erf", "soft", "y"),
]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_JIT", "wait")


def opened(threads: int = 1) -> tenonnx.InferenceSession:
    feeds = given((2, 5))
    return session(NODES, feeds, "y skip line", WEIGHTS, threads=threads, opset=23)


def given(shape: tuple[int, int], seed: int = 0) -> dict[str, Any]:
    x = floats(*shape, WIDTH, seed=seed)
    return {"x": x, "flat": x[0] * 2}


def uncaptured(monkeypatch: pytest.MonkeyPatch, threads: int = 1) -> tenonnx.InferenceSession:
    with monkeypatch.context() as patch:
        patch.setattr(capturable, "COUNTED", False)
        return opened(threads)


def same(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_the_same(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps by machine code: for shapes that come once, again, or in turns."""
    plain, one = uncaptured(monkeypatch, threads), opened(threads)
    assert not captures(plain)
    shapes = [(2, 5)] * 5 + [(1, 1)] * 4 + [(2, 5), (1, 1), (3, 9), (40, 17)] * 4 + [(4, 4)]
    for seed, shape in enumerate(shapes):
        feeds = given(shape, seed)
        same(one.run(None, feeds), plain.run(None, feeds))
    found = captures(one)
    assert len(found) == 1 < 10 <= len(one._plan.steps)
    assert set(found) == {4}, "the first one, and those that came again"


def test_captures_are_few() -> None:
    one = opened()
    for length in range(1, 2 * capturable.KEPT):
        for _ in range(4):
            one.run(None, given((1, length)))
    assert set(captures(one)) == {capturable.KEPT}


def test_shapes_that_take_turns_do_not_drive_out_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures stay, and are replayed, where there are more shapes than captures."""
    one, traced = opened(), []
    original = span.Tracer._call
    monkeypatch.setattr(span.Tracer, "_call", lambda *a: traced.append(1) or original(*a))
    for most in (capturable.KEPT, capturable.KEPT + 3):
        for _ in range(3):
            traced.clear()
            for length in range(1, most + 1):
                one.run(None, given((1, length)))
        assert set(captures(one)) == {capturable.KEPT}
        assert len(traced) == most - capturable.KEPT


def test_a_step_gives_up_on_shapes_that_never_come_again() -> None:
    one = opened()
    for length in range(1, capturable.PATIENCE + 2):
        one.run(None, given((1, length)))
    for _ in range(4):
        one.run(None, given((1, 3)))
    assert set(captures(one)) == {1}, "the first one"


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


def test_capturing_keeps_no_buffers() -> None:
    """Arrays that are made to compare a step's answers serve no run."""
    one = session([node("Relu", "x", "y")], {"x": floats(1 << 16)}, "y")
    before = buffers._pool.bytes
    kept = one.run(None, {"x": floats(1 << 16)})
    assert captures(one) == [1]
    assert buffers._pool.bytes - before <= 1.2 * kept[0].nbytes


def test_nothing_is_captured_while_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is not there yet may do better than those that are."""
    one = opened()
    with monkeypatch.context() as patch:
        for module in (capturable, span):
            patch.setattr(module, "compiles", lambda: True)
        for _ in range(3):
            wanted = one.run(None, given((2, 5)))
        assert set(captures(one)) == {0}
    same(one.run(None, given((2, 5))), wanted)
    assert set(captures(one)) == {1}


@contextlib.contextmanager
def late_replay() -> Iterator[None]:
    """Has the kernel that replays captures not be compiled yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "KERNELS", [])
        patch.setattr(runtime, "REOPENED", set())
        late = capturable.JitKernel("capture.replay", "replay")
        late.state = runtime.NUMPY
        patch.setenv("TENONNX_JIT", "1")
        patch.setattr(capturable, "REPLAY", late)
        patch.setattr(capturable, "compiles", lambda: True)
        yield


def test_steps_that_wait_for_the_kernel_go_with_their_session() -> None:
    with late_replay():
        one = opened()
        one.run(None, given((2, 5)))
    (step,) = one._plan._lowering.block.items
    there = weakref.ref(step.call.__wrapped__)
    gc.collect()
    gc.disable()
    del one, step
    gone = there() is None
    gc.enable()
    assert gone


def test_sessions_that_are_there_before_the_kernel() -> None:
    """The kernel that replays captures may be compiled after a session was opened."""
    with late_replay():
        one = opened()
        wanted = one.run(None, given((2, 5)))
    names = {kernel_name(step.call) for step in one._plan.steps}
    assert "tenonnx_cpu.elementwise.program.ProgramCall.launch" in names
    same(one.run(None, given((2, 5))), wanted)
    (step,) = one._plan._lowering.block.items
    assert len(step.call._call.__self__) == 4, "a capture"


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


def turning() -> tuple[Any, dict[str, Any]]:
    """Returns a step whose kernel may refuse, and its inputs."""
    feeds = {
        "x": floats(1, 2, 3, 8), "cos": floats(9, 4), "sin": floats(9, 4, seed=1),
        "ids": np.array([[0, 4, 8]]),
    }  # fmt: skip
    one = session([node("RotaryEmbedding", "x cos sin ids", "y")], feeds, "y", opset=23,
                  kinds={"ids": 7})  # fmt: skip
    return one, feeds


def test_what_a_kernel_refuses_after_it_was_captured() -> None:
    one, feeds = turning()
    (first,) = [one.run(None, feeds) for _ in range(5)][-1]
    assert captures(one) == [1]
    feeds["ids"] = np.array([[0, 4, -1]])
    (found,) = one.run(None, feeds)
    np.testing.assert_allclose(found, first, rtol=1e-6)  # numpy counts from the end
    feeds["ids"] = np.array([[0, 4, 9]])
    with pytest.raises(tenonnx.RuntimeException, match="9"):
        one.run(None, feeds)


def test_more_scratch_memory_than_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    one, feeds = turning()
    (first,) = one.run(None, feeds)
    monkeypatch.setattr(scratch, "KEPT", 0)
    monkeypatch.setattr(scratch, "_local", threading.local())
    for _ in range(4):
        assert one.run(None, feeds)[0].tobytes() == first.tobytes()


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
    """Views that nobody may write to, of an input and of a constant."""
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


def test_what_steps_exchange_shares_memory() -> None:
    nodes = [node("Softmax", f"h{n}", f"h{n + 1}") for n in range(8)]
    feeds = {"h0": floats(64, 256)}
    one = session(nodes, feeds, "h8")
    for _ in range(2):
        one.run(None, feeds)
    buffers._pool.buffers, buffers._pool.bytes = [], 0
    (kept,) = one.run(None, feeds)
    assert 2 * kept.nbytes < buffers._pool.bytes < 4 * kept.nbytes


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


def nothing(*_: Any) -> None:
    raise AssertionError


class TestCapturedCalls:
    x = floats(3, 4)
    run = staticmethod(len)
    """Something that CPython calls."""

    def captured(self, arguments: tuple[Any, ...], inputs: Any = None, result: Any = None) -> Any:
        inputs = (self.x,) if inputs is None else inputs
        result = np.empty((3, 4), np.float32) if result is None else result
        launch = Launch(self.run, (*arguments, result.reshape(-1)), result)
        return capture(inputs, [False] * len(inputs), launch)

    def test_places_do_not_depend_on_addresses(self) -> None:
        room = scratch.floats(8)
        found = [
            self.captured((x.reshape(-1), x[1:], room[2:4], 7), inputs=(x,))
            for x in (self.x, floats(3, 4))
        ]
        assert found[0].facts == found[1].facts

    def test_a_copy_is_not_the_same_twice(self) -> None:
        first, second = (self.captured((self.x.copy(),)) for _ in range(2))
        assert first.facts != second.facts

    @pytest.mark.parametrize(
        ("first", "second", "said"),
        [
            ((x, 1), (x, 1), True),
            ((x, 1), (x, 2), False),
            ((x,), (x, 1), False),
            ((WEIGHTS["w"][1:],), (WEIGHTS["w"][1:],), True),
            ((WEIGHTS["w"][1:],), (WEIGHTS["w"][2:],), False),
            ((WEIGHTS["w"].copy(),), (WEIGHTS["w"].copy(),), False),
        ],
    )
    def test_what_is_said_again(self, first: Any, second: Any, said: bool) -> None:
        captured = self.captured(first)
        result = np.empty((3, 4), np.float32)
        again = Launch(self.run, (*second, result.reshape(-1)), result)
        assert repeats(captured, again) == said
        assert not repeats(captured, again._replace(run=min))
        assert not repeats(captured, result)

    def test_fixed_results_are_compared(self) -> None:
        one, same, other = (fix(np.array(n)) for n in (1, 1, 2))
        captured = capture((self.x,), [False], Launch(None, (), one))
        assert repeats(captured, Launch(None, (), same))
        assert not repeats(captured, Launch(None, (), other))

    def test_numbers_count(self) -> None:
        assert self.captured((1,)).facts != self.captured((2,)).facts

    def test_inputs_that_share_memory(self) -> None:
        assert self.captured((self.x[0],), inputs=(self.x, self.x)) is None
        whole = floats(3, 8)
        left, right = whole[:, :4], whole[:, 4:]
        places = self.captured((left, right), inputs=(left, right)).facts[1]
        assert [place.number for place in places[:2]] == [0, 1]

    @pytest.mark.parametrize("result", [floats(3, 8)[:, ::2], np.empty((0, 4), np.float32)])
    def test_results_that_are_not_whole_memory(self, result: Any) -> None:
        assert self.captured((), result=result) is None

    def test_functions_of_python(self) -> None:
        launch = Launch(nothing, (), np.empty(3, np.float32))
        assert capture((self.x,), [False], launch) is None
