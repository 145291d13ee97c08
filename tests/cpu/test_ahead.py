"""Compiling ahead: workers share what there is to do, and one that ends loses nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tenonnx_cpu.jit.code.ahead import Work, _Workers
from tenonnx_cpu.jit.code.child import Died


class Worker:
    """Does everything, but ends in the middle of some things, as often as they say."""

    def __init__(self, ends: dict[str, int]) -> None:
        self.ends = ends
        self.done: list[str] = []
        self.ended = 0

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        (name,) = what.values()
        if self.ends.get(name, 0) > 0:
            self.ends[name] -= 1
            self.ended += 1
            raise Died("killed")
        self.done.append(name)
        return {"error": "wrong" if name == "c" else ""}


def workers_of(*kernels: str) -> tuple[_Workers, list[float]]:
    told: list[float] = []
    return _Workers(Work(kernels, ("s",)), lambda _, share: told.append(share)), told


def test_everything_is_done_once_and_told_of() -> None:
    pool, told = workers_of("a", "b", "c")
    worker: Any = Worker({})
    pool.run(worker, last=True)
    assert worker.done == ["s", "a", "b", "c"]
    assert told == [0, 0.25, 0.5, 0.75]
    assert pool.errors == {"c": "wrong"}


@pytest.mark.parametrize(
    ("times", "done", "errors"), [(1, ["s", "a", "b"], {}), (2, ["s", "a"], {"b": "killed"})]
)
def test_what_a_worker_ends_in_is_tried_once_more(
    times: int, done: list[str], errors: dict[str, str]
) -> None:
    pool, told = workers_of("a", "b")
    worker: Any = Worker({"b": times})
    pool.run(worker, last=True)
    assert pool.errors == errors
    assert worker.done == done
    assert worker.ended == times
    assert max(told) <= 1


def test_a_worker_that_ends_leaves_the_rest_to_the_others() -> None:
    pool, _ = workers_of("a", "b")
    first: Any = Worker({})
    other: Any = Worker({"s": 1})
    with pytest.raises(Died):
        pool.run(other, last=False)
    pool.run(first, last=True)
    assert first.done == ["a", "b", "s"]
    assert pool.errors == {}
