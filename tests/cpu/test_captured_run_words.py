"""``CapturedRun``: a launch as words and objects, and the places of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from captured_models import WEIGHTS, nothing
from running import captures, floats, require_kernels, session

from models import node
from tenonnx_cpu import buffers
from tenonnx_cpu.capture.captured_run import CapturedRun
from tenonnx_cpu.capture.launch import Launch, fix
from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit import scratch

require_kernels()


def headers_of(captured: CapturedRun) -> list[list[int]]:
    """Return the headers of a run's only launch, without their lengths."""
    code, found = captured.launches.code, list[list[int]]()
    place = 5 + code[2]
    while place < code[0]:
        found.append(code[place + 1 : place + code[place]].tolist())
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
