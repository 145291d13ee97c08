"""The memory of results: never that of an array in use, and as little as may be."""

from __future__ import annotations

import gc
import itertools
import mmap
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenonnx_cpu import buffers

PAGE = mmap.PAGESIZE


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pool in which nothing is yet."""
    gc.collect()
    made = buffers._Pool()
    monkeypatch.setattr(buffers, "_pool", made)
    return made


def of_pages(pages: int) -> Any:
    return buffers.empty((pages, PAGE), buffers.BYTE)


def private_bytes() -> int:
    """Return how much memory this process does not share."""
    resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return (resident - shared) * PAGE


def test_memory_in_use_is_not_given_again() -> None:
    kept = [buffers.empty((100, 100)) for _ in range(5)]
    for n, array in enumerate(kept):
        array[:] = n
    view = kept.pop()[3:5, ::2]
    buffers.empty((100, 100))[:] = -1
    assert [array.max() for array in kept] == [0, 1, 2, 3]
    assert (view == 4).all()


@given(
    st.lists(
        st.tuples(st.integers(1, 300_000), st.integers(0, 9), st.sampled_from("array view buffer")),
        max_size=40,
    )
)
def test_live_arrays_never_overlap(steps: list[tuple[int, int, str]]) -> None:
    alive: list[tuple[Any, int]] = []
    for number, (size, place, kind) in enumerate(steps):
        array = buffers.empty((size,), np.dtype(np.uint16))
        array[:] = number
        assert array.nbytes < buffers.MIN_POOLED_BYTES or array.ctypes.data % 64 == 0
        kept: dict[str, Any] = {"view": array[::-3].reshape(-1, 1), "buffer": memoryview(array)}
        alive.insert(0, (kept.get(kind, array), number))
        del array, kept
        del alive[place + 1 : place + 3]
        assert all((np.asarray(each) == own).all() for each, own in alive)


def test_memory_that_nobody_uses_is_given_again() -> None:
    first = buffers.empty((333, 100))
    place = first.ctypes.data
    assert place % buffers.BUFFER_ALIGNMENT_BYTES == 0
    del first
    other = buffers.empty((100, 333), np.dtype(np.int32))
    assert other.ctypes.data == place
    assert other.dtype == np.int32


def test_other_sizes_take_the_lowest_memory_that_is_free() -> None:
    one, two, three = of_pages(30), of_pages(20), of_pages(10)
    start = one.ctypes.data
    assert two.ctypes.data == start + 30 * PAGE
    assert three.ctypes.data == start + 50 * PAGE
    del one, two
    assert of_pages(50).ctypes.data == start, "what adjoins is one"
    small, rest = of_pages(12), of_pages(38)
    assert (small.ctypes.data, rest.ctypes.data) == (start, start + 12 * PAGE)
    assert of_pages(11).ctypes.data == start + 60 * PAGE


def test_runs_of_other_shapes_take_no_more_than_one(pool: Any) -> None:
    for pages in (*range(40, 63), *range(62, 39, -1)):
        one = of_pages(pages)
        two = of_pages(2 * pages)
        one = of_pages(pages + 1)
        del one, two
        assert pool.bytes == buffers.MIN_CHUNK_BYTES


def test_what_is_kept_is_bounded(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MAX_POOLED_BYTES", 1 << 20)
    for n in range(1, 100):
        buffers.empty((n, 5000))
        assert pool.bytes <= 1 << 20
    held = [buffers.empty((20, 5000)) for _ in range(10)]
    assert pool.bytes <= 1 << 20
    assert len({array.ctypes.data for array in held}) == 10


def test_few_arrays_are_looked_at(pool: Any) -> None:
    held = [of_pages(9) for _ in range(3000)]
    assert len({array.ctypes.data for array in held}) == 3000
    assert max(len(chunk._blocks) for chunk in pool.chunks) <= buffers.MAX_CHUNK_BLOCKS


def test_a_result_holds_its_own_pages_alone() -> None:
    """Threads that end, each with a result that the program keeps, keep nothing else."""
    results = []

    def work() -> None:
        first, kept, last = of_pages(1000), of_pages(10), of_pages(1000)
        for each in (first, kept, last):
            each[:] = 7
        results.append(kept)

    def run() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    run()
    before = private_bytes()
    for _ in range(8):
        run()
    assert private_bytes() - before < 8 * 100 * PAGE
    assert all((each == 7).all() for each in results)


def test_threads_have_memory_of_their_own() -> None:
    places: list[int] = []
    mine = buffers.empty((50, 5000))
    del mine
    thread = threading.Thread(target=lambda: places.append(of_pages(50).ctypes.data))
    thread.start()
    thread.join()
    assert places[0] != buffers.empty((50, 5000)).ctypes.data


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
def test_a_signals_handler_takes_other_memory() -> None:
    """The run that it interrupts may be between finding memory and taking it."""
    kept: list[Any] = []

    def handler(*_: Any) -> None:
        kept.append(of_pages(8))
        kept[-1][:] = 1
        del kept[:-4]

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-4)
    try:
        for n in itertools.count():
            mine = of_pages(8 + n % 5)
            mine[:] = 2
            assert (mine == 2).all()
            assert all((each == 1).all() for each in tuple(kept))
            if n > 5000 and len(kept) == 4:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_want_of_room_names_the_result() -> None:
    with pytest.raises(MemoryError, match=r"a float32 tensor of shape \[65536, 65536, 65536\]"):
        buffers.empty((1 << 16, 1 << 16, 1 << 16))
