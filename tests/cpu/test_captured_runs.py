"""Steps that machine code does again: what they compute, for which arrays, and what they keep."""

from __future__ import annotations

import contextlib
import gc
import itertools
import pickle
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
from tenonnx_cpu.capture import capturable, captured_run, recent, span
from tenonnx_cpu.capture.captured_run import CapturedRun
from tenonnx_cpu.capture.launch import Launch, fix
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit import scratch

require_kernels()

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
    monkeypatch.setenv("TENONNX_JIT", "1")


def opened(threads: int = 1) -> tenonnx.InferenceSession:
    feeds = given((2, 5))
    return session(NODES, feeds, "y skip line", WEIGHTS, threads=threads, opset=23)


def given(shape: tuple[int, int], seed: int = 0) -> dict[str, Any]:
    x = floats(*shape, WIDTH, seed=seed)
    return {"x": x, "flat": x[0] * 2}


@contextlib.contextmanager
def only_replays() -> Iterator[None]:
    """Fail where a run does what no capture does."""

    def refuse(_: Any) -> bool:
        raise AssertionError("a step is no replay")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span, "key_of", refuse)
        patch.setattr(capturable, "key_of", refuse)
        yield


def uncaptured(monkeypatch: pytest.MonkeyPatch, threads: int = 1) -> tenonnx.InferenceSession:
    with monkeypatch.context() as patch:
        patch.setattr(capturable, "COUNTED", False)
        return opened(threads)


def same(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


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


def headers_of(captured: CapturedRun) -> list[list[int]]:
    """Return the headers of a run's only launch, without their lengths."""
    code, found = captured.launches.code, list[list[int]]()
    place = 5 + code[2]
    while place < code[0]:
        found.append(code[place + 1 : place + code[place]])
        place += code[place]
    assert len(found) == code[4]
    return found


class TestCapturedRuns:
    x = floats(3, 4)
    run = staticmethod(len)
    """Something that CPython calls."""

    def captured(
        self, arguments: Any, inputs: Any = None, result: Any = None, same: Any = ()
    ) -> CapturedRun | None:
        """Return a run of a launch of a step that reads ``same`` arrays in every run, too."""
        inputs = (self.x,) if inputs is None else inputs
        made = np.empty((3, 4), np.float32) if result is None else result
        launch = Launch(self.run, (*arguments, made.reshape(-1)), made)
        captured = CapturedRun(inputs)
        taken = [*range(len(inputs)), *(-1 for _ in same)]
        said = captured.add(launch, (*inputs, *same), taken, [len(inputs)])
        assert said == captured.clear
        return captured if said else None

    def headers(self, *arguments: Any, **more: Any) -> list[list[int]]:
        captured = self.captured(arguments, **more)
        assert captured is not None
        return headers_of(captured)

    def test_places_do_not_depend_on_addresses(self) -> None:
        room = scratch.floats(8)
        first, second = (
            self.headers(x.reshape(-1), x[1:], room[2:4], 7, inputs=(x,))
            for x in (self.x, floats(3, 4))
        )
        assert first == second
        places = [(at.FROM_INPUT, 0, 0), (at.FROM_INPUT, 0, 16), (at.FROM_SCRATCH, 0, 8)]
        assert [tuple(each[1:4]) for each in first] == [*places, (at.FROM_OUTPUT, 0, 0)]

    def test_a_copy_is_another_one_in_each_run(self) -> None:
        assert self.captured((self.x.copy(),)) is None

    def test_what_nobody_writes_to_is_the_same(self) -> None:
        numbers = buffers.frozen(np.arange(12)[1:].reshape(11, 1))
        assert self.captured((numbers[2:], fix(np.arange(3)))) is not None

    def test_views_of_constants_are_the_same(self) -> None:
        w = WEIGHTS["w"].copy()
        assert self.captured((w[1:],), same=(w,)) is not None
        assert self.captured((w,), same=(w[1:],)) is None
        assert self.captured((w[1:],)) is None

    def test_a_view_of_what_others_write_to_is_not_the_same(self) -> None:
        seen = np.broadcast_to(self.x.copy(), (2, 3, 4))
        assert not seen.flags.writeable
        assert self.captured((seen,)) is None

    def test_inputs_that_share_memory(self) -> None:
        assert self.captured((self.x[0],), inputs=(self.x, self.x)) is None
        assert self.captured((self.x[0, 1:],), inputs=(self.x, self.x[:2])) is None
        whole = floats(3, 8)
        left, right = whole[:, :4], whole[:, 4:]
        headers = self.headers(left, right, inputs=(left, right))
        assert [header[2] for header in headers[:2]] == [0, 1]

    def test_arrays_that_are_two_inputs(self) -> None:
        """A step that reads one of them knows which, also when they differ."""
        nodes = [node("Relu", "a", "c"), node("Exp", "b", "d"), node("Mul", "c d", "y")]
        one = session(nodes, {"a": self.x, "b": self.x}, "y")
        for a, b in ((self.x, self.x), (self.x, floats(3, 4, seed=5)), (self.x, self.x)):
            (y,) = one.run(None, {"a": a, "b": b})
            np.testing.assert_allclose(y, np.maximum(a, 0) * np.exp(b), rtol=1e-6)

    def test_a_step_that_reads_an_array_twice(self) -> None:
        feeds = {"x": self.x}
        one = session([node("Mul", "x x", "y")], feeds, "y")
        for seed in range(3):
            feeds["x"] = floats(3, 4, seed=seed)
            np.testing.assert_array_equal(one.run(None, feeds)[0], feeds["x"] ** 2)
        assert captures(one) == [1]

    def test_results_that_are_not_whole_memory(self) -> None:
        assert self.captured((), result=floats(3, 8)[:, ::2]) is None

    def test_results_without_elements(self) -> None:
        assert self.captured((), result=np.empty((0, 4), np.float32)) is not None

    def test_functions_of_python(self) -> None:
        captured = CapturedRun((self.x,))
        launch = Launch(nothing, (), np.empty(3, np.float32))
        assert not captured.add(launch, (self.x,), [0], [1])

    def test_results_that_a_node_does_not_have(self) -> None:
        captured, more = CapturedRun((self.x,)), np.empty(3, np.float32)
        launch = Launch(self.run, (self.x, more), (np.empty(4), more))
        assert captured.add(launch, (self.x,), [0], [1])
        assert headers_of(captured)[1][1:3] == [at.FROM_OUTPUT, 1]


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
