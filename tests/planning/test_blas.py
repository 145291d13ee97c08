"""Threads of numpy's products, within runs and after them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
import pytest

import tenonnx
from tenonnx.planning import blas
from tenonnx.planning.quiet import quietly
from tenonnx.process.cores import available_cores

OPENBLAS = blas.openblas()
pytestmark = pytest.mark.skipif(
    OPENBLAS is None or OPENBLAS.own, reason="numpy's OpenBLAS has no number for the process"
)


@pytest.fixture(autouse=True)
def get() -> Iterator[Any]:
    """Give OpenBLAS four threads; ask how many it uses."""
    assert OPENBLAS is not None
    before = OPENBLAS.get()
    OPENBLAS.set(4)
    yield OPENBLAS.get
    assert OPENBLAS.get() == 4
    OPENBLAS.set(before)


def call(threads: int, function: Any, *arguments: Any) -> Any:
    return blas.bounded(threads)(function, arguments)


def test_a_bound_holds_within_a_call_and_no_longer(get: Any) -> None:
    assert call(3, get) == 3
    assert get() == 4


def test_of_nested_bounds_the_smallest_holds(get: Any) -> None:
    seen = call(2, lambda: (call(3, get), call(1, get), get()))
    assert seen == (2, 1, 2)


def test_what_bounds_nothing_is_not_there() -> None:
    assert blas.bounded(4) is blas.bounded(64) is quietly
    assert call(1, lambda: blas.bounded(3)) is not quietly  # compiled while another session runs


def fail() -> NoReturn:
    raise KeyError


def test_a_bound_ends_with_an_error(get: Any) -> None:
    with pytest.raises(KeyError):
        call(2, fail)
    assert get() == 4


def test_of_runs_at_once_the_smallest_bound_holds(get: Any) -> None:
    inside, done = threading.Event(), threading.Event()
    other = threading.Thread(target=call, args=(1, lambda: (inside.set(), done.wait(10))))
    other.start()
    assert inside.wait(10)
    seen = [call(2, get)]
    done.set()
    other.join()
    assert [*seen, call(2, get)] == [1, 2]


def test_many_threads_leave_the_number_as_it_was(get: Any) -> None:
    """Whichever leaves last puts back what was there before the first."""
    calls = [blas.bounded(1 + i % 3) for i in range(4)]
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(500):
            seen = calls[index](get, ())
            if seen > 1 + index % 3:
                wrong.append(seen)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert get() == 4


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
@pytest.mark.parametrize("raises", [False, True])
def test_handlers_may_run_sessions_anywhere(raises: bool, get: Any) -> None:
    """In the middle of entering and leaving as well; what they raise leaves no bound behind."""
    inner, outer, seen, count = blas.bounded(1), blas.bounded(2), set(), 0

    def handler(*_: Any) -> None:
        nonlocal count
        count += 1
        seen.add(inner(get, ()))
        if raises:
            raise KeyError

    def until_handled() -> None:
        # Once: on a slow machine the next one would come where nothing is caught.
        handled = count
        signal.setitimer(signal.ITIMER_REAL, 1e-3)
        while count == handled:
            assert outer(get, ()) <= 2

    before = signal.signal(signal.SIGALRM, handler)
    try:
        while count < 100:
            with contextlib.suppress(KeyError):
                until_handled()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen == {1}
    assert outer(get, ()) == 2
    assert np.geterr()["divide"] == "warn"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_no_bounds_of_other_threads(get: Any) -> None:
    inside, done = threading.Event(), threading.Event()
    other = threading.Thread(target=call, args=(1, lambda: (inside.set(), done.wait(30))))
    other.start()
    assert inside.wait(10)

    def fork() -> int:
        if child := os.fork():
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(10 * get() + call(2, get))

    try:
        assert call(3, fork) == 42
        assert fork() == 42
    finally:
        done.set()
        other.join()


def test_cores_are_left_to_others_meanwhile(get: Any) -> None:
    with blas.leaving(1):
        assert (get(), call(2, get)) == (3, 2)
        with blas.leaving(9):
            assert get() == 1
    assert get() == 4


def test_with_openmp_a_thread_bounds_itself(get: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPENBLAS is not None
    monkeypatch.setattr(blas, "openblas", lambda: OPENBLAS._replace(own=True))
    blas._bounds.cache_clear()
    try:
        assert call(3, lambda: (get(), call(2, get), get())) == (3, 2, 3)
        assert blas.bounded(4) is quietly
        with blas.leaving(1):
            assert get() == 4
    finally:
        blas._bounds.cache_clear()


def test_numpy_over_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "OPENBLAS_NAMES", ("mkl_{}",))
    assert blas.openblas.__wrapped__() is None
    monkeypatch.setattr(blas, "openblas", lambda: None)
    blas._bounds.cache_clear()
    try:
        assert blas.bounded(1) is quietly
        with blas.leaving(1):
            pass
    finally:
        blas._bounds.cache_clear()


def test_openblas_is_found_by_its_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = blas.openblas.__wrapped__()
    if not (Path(np.__file__).parents[1] / "numpy.libs").exists():
        pytest.skip("this numpy brings no libraries")
    monkeypatch.setattr(sys.modules[blas.LINKED], "__file__", "nowhere.so")
    by_file = blas.openblas.__wrapped__()
    assert found is not None
    assert by_file is not None
    by_file.set(3)
    assert found.get() == 3
    found.set(4)


ASKING = """
    <ir_version: 10, opset_import: ["": 21]>
    test (float[2] x) => (float[2] y) { y = Exp(x) }
"""


@pytest.mark.parametrize(("asked", "expected"), [(1, 1), (0, 4), (64, None)])
def test_a_sessions_number_binds_numpy(asked: int, expected: int | None, get: Any) -> None:
    seen: list[int] = []

    class Asks:
        def on_step(self, *_: Any) -> None:
            seen.append(get())

    options = tenonnx.SessionOptions(intra_op_num_threads=asked)
    session = tenonnx.InferenceSession(onnx.parser.parse_model(ASKING), options, ["cpu"])
    session._plan.run_observed([np.ones(2, np.float32)], [Asks()])
    assert seen == [min(4, available_cores()) if expected is None else expected]
