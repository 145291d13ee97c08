"""Runs that are stopped within a kernel: soon, and what comes next is right."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import onnx
import pytest
from running import Arrays, floats, require_kernels, session
from test_trees import forest

import tenonnx
from models import node
from tenonnx.process.cores import available_cores
from tenonnx_cpu.jit import scratch

require_kernels()

SOON = 1.0
"""Seconds of CPU time after which a run that should have stopped has failed the test; it takes 0.1.

Of CPU time: on a machine that does other things, too, wall time says what these take."""

LATER = 0.05
"""Seconds after which runs are stopped."""

MODELS: dict[str, Callable[[], tuple[list[Any], Arrays, Arrays]]] = {
    "product": lambda: (
        [node("MatMul", "x w", "y")],
        {"x": floats(20_000, 1000)},
        {"w": floats(1000, 1500)},
    ),
    "convolution": lambda: (
        [node("Conv", "x w", "y", pads=[2, 2, 2, 2])],
        {"x": floats(16, 64, 96, 96)},
        {"w": floats(128, 64, 5, 5)},
    ),
    "attention": lambda: (
        [node("Attention", "q k v", "y", q_num_heads=8, kv_num_heads=8)],
        {name: floats(2, 4000, 512) for name in "qkv"},
        {},
    ),
    "lstm": lambda: (
        [node("LSTM", "x w r", "y", hidden_size=256)],
        {"x": floats(60_000, 2, 16)},
        {"w": floats(1, 1024, 16), "r": floats(1, 1024, 256)},
    ),
    "elementwise": lambda: (
        [
            node(
                ("Tanh", "Exp", "Erf")[n % 3], f"x{n}" if n else "x", f"x{n + 1}" if n < 23 else "y"
            )
            for n in range(24)  # of which three alone are done before they are stopped
        ],
        {"x": floats(50_000_000)},
        {},
    ),
}


def opened(name: str, threads: int) -> tuple[tenonnx.InferenceSession, Arrays]:
    nodes, feeds, weights = MODELS[name]()
    return session(nodes, feeds, "y", weights, threads=threads, opset=23), feeds


@contextmanager
def after(seconds: float, act: Callable[[], None]) -> Iterator[list[float]]:
    """Do something in another thread meanwhile; yield when."""
    when: list[float] = []

    def go() -> None:
        when.append(time.process_time())
        act()

    timer = threading.Timer(seconds, go)
    timer.start()
    try:
        yield when
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def handling(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_terminate_acts_within_a_kernel(name: str, threads: int) -> None:
    given, feeds = opened(name, threads)
    options = tenonnx.RunOptions()
    with after(LATER, lambda: setattr(options, "terminate", True)) as when:
        with pytest.raises(tenonnx.Fail, match="terminate is set"):
            given.run(None, feeds, options)
        assert time.process_time() - when[0] < SOON


BYTES = np.random.default_rng(0).integers(0, 256, (30_000, 2048), np.uint8)

OTHERS: dict[str, Callable[[], tuple[list[Any], Arrays, Arrays]]] = {
    "trees": lambda: (
        [node("TreeEnsembleRegressor", "x", "y", domain="ai.onnx.ml",
              **forest(200, 6, 8, ["BRANCH_LEQ"]))],
        {"x": floats(200_000, 8)},
        {},
    ),
    "int8": lambda: (
        [node("MatMulInteger", "x w", "a"), node("Cast", "a", "y", to=1)],
        {"x": BYTES},
        {"w": BYTES[:2048, :1024].view(np.int8)},
    ),
    "int4": lambda: (
        [node("MatMulNBits", "x w s", "y", domain="com.microsoft", K=2048, N=2048, bits=4,
              block_size=32, accuracy_level=4)],
        {"x": floats(20_000, 2048)},
        {"w": BYTES[:2048, :1024].reshape(2048, 64, 16), "s": floats(2048, 64)},
    ),
    "top_k": lambda: (
        [node("TopK", "x k", "y z")], {"x": floats(3000, 5000)}, {"k": np.array([1000])},
    ),
}  # fmt: skip
"""Models that take a second or more; the result of the first rows is that of all."""


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_stopped_and_the_next_run_is_right(name: str) -> None:
    nodes, feeds, weights = OTHERS[name]()
    given = session(
        nodes, feeds, "y", weights, threads=2, domains={"ai.onnx.ml": 3, "com.microsoft": 1},
        kinds={"x": onnx.helper.np_dtype_to_tensor_dtype(feeds["x"].dtype)},
    )  # fmt: skip
    few = {"x": feeds["x"][:8]}
    (wanted,) = given.run(None, few)
    options = tenonnx.RunOptions()
    with after(LATER, lambda: setattr(options, "terminate", True)) as when:
        with pytest.raises(tenonnx.Fail, match="terminate is set"):
            given.run(None, feeds, options)
        assert time.process_time() - when[0] < SOON
    given._options.time_limit = LATER
    start = time.process_time()
    with pytest.raises(tenonnx.Fail, match="takes longer than"):
        given.run(None, feeds)
    assert time.process_time() - start < LATER + SOON
    given._options.time_limit = None
    np.testing.assert_array_equal(given.run(None, few)[0], wanted)


SMALL, LARGE = floats(6, 1000), floats(20_000, 1000)


def product(**options: Any) -> tenonnx.InferenceSession:
    nodes = [node("MatMul", "x w", "y")]
    made = session(nodes, {"x": SMALL}, "y", {"w": MATRIX}, threads=2)
    made._options.time_limit = options.get("time_limit")
    return made


MATRIX = floats(1000, 1500)


def test_a_time_limit_acts_within_a_kernel_and_the_next_run_is_right() -> None:
    given = product(time_limit=LATER)
    for _ in range(3):
        start = time.process_time()
        with pytest.raises(tenonnx.Fail, match="takes longer than"):
            given.run(None, {"x": LARGE})
        assert time.process_time() - start < LATER + SOON
        (y,) = given.run(None, {"x": SMALL})
        np.testing.assert_allclose(y, SMALL @ MATRIX, rtol=1e-3, atol=1e-3)


class Odd(Exception):
    """An exception of a handler; neither KeyboardInterrupt nor an error of a node."""


def endlessly(given: tenonnx.InferenceSession, x: Any) -> None:
    while True:
        given.run(None, {"x": x})


@pytest.mark.parametrize("rows", [20_000, 200])
def test_what_a_handler_raises_comes_through_as_it_is(rows: int) -> None:
    given = product()

    def handler(_number: int, _frame: FrameType | None) -> None:
        raise Odd("from the handler")

    with (
        handling(handler),
        after(LATER, lambda: os.kill(os.getpid(), signal.SIGUSR1)),
        pytest.raises(Odd, match="from the handler"),
    ):
        endlessly(given, LARGE[:rows])
    (y,) = given.run(None, {"x": SMALL})
    np.testing.assert_allclose(y, SMALL @ MATRIX, rtol=1e-3, atol=1e-3)


def test_a_handler_runs_sessions_in_the_middle_of_a_kernel() -> None:
    given, other = product(), product()
    wanted, small = given.run(None, {"x": LARGE})[0], other.run(None, {"x": SMALL})[0]
    found: list[Any] = []

    def handler(_number: int, _frame: FrameType | None) -> None:
        found.append(other.run(None, {"x": SMALL})[0])
        found.append(given.run(None, {"x": SMALL})[0])

    def pester() -> None:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.05)

    with handling(handler), after(0.05, pester):
        (y,) = given.run(None, {"x": LARGE})
    assert found
    np.testing.assert_array_equal(y, wanted)
    for each in found:
        np.testing.assert_array_equal(each, small)


def test_a_handlers_session_leaves_the_thread_its_memory() -> None:
    """Capture are replayed afterwards: the interrupted kernel's memory is still known."""
    given, other = product(), product()
    given.run(None, {"x": LARGE})

    def handler(_number: int, _frame: FrameType | None) -> None:
        other.run(None, {"x": SMALL})

    with handling(handler), after(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1)):
        given.run(None, {"x": LARGE})
    memory = scratch.scratch(0)
    own = [row for row in scratch.ROOMS.tolist() if row[0] == threading.get_ident()]
    assert own == [[threading.get_ident(), memory.ctypes.data, memory.size]]


def test_a_stop_leaves_runs_of_other_threads_alone() -> None:
    given = product()
    wanted = given.run(None, {"x": LARGE[:2000]})[0]
    found: list[Any] = []

    def work() -> None:
        found.extend(given.run(None, {"x": LARGE[:2000]})[0] for _ in range(5))

    other = threading.Thread(target=work)
    other.start()
    while other.is_alive():
        options = tenonnx.RunOptions()
        with (
            after(0.03, lambda options=options: setattr(options, "terminate", True)),  # type: ignore[misc]
            pytest.raises(tenonnx.Fail),
        ):
            given.run(None, {"x": LARGE}, options)
    other.join()
    assert len(found) == 5
    for each in found:
        np.testing.assert_array_equal(each, wanted)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.skipif(available_cores() < 2, reason="a run on one core has nothing to lose")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_of_a_handlers_fork_is_told_that_its_run_is_lost() -> None:
    given = product()
    given.run(None, {"x": SMALL})
    children: list[int] = []

    def handler(_number: int, _frame: FrameType | None) -> None:
        children.append(os.fork())

    with handling(handler), after(LATER, lambda: os.kill(os.getpid(), signal.SIGUSR1)):
        try:
            given.run(None, {"x": LARGE})
        except BaseException as error:
            if children == [0]:
                fine = "forked" in str(error)
                y = given.run(None, {"x": SMALL})[0]
                os._exit(0 if fine and np.allclose(y, SMALL @ MATRIX, 1e-3, 1e-3) else 3)
            raise
        if children == [0]:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
