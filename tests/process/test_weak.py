"""Objects that go while the program is interrupted: the interrupt is raised, not lost."""

from __future__ import annotations

import ctypes
import json
import operator
import signal
import sys
import time
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx
from models import model, node, value
from tenonnx.process import interruption
from tenonnx.process.weak import WeakTable, when_gone
from tenonnx_cpu.capture.launch import fix, is_fixed, mark_addresses

W = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
X = np.ones((2, 64), np.float32)


class Thing:
    pass


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def drop_interrupted(holder: list[Any]) -> None:
    """Drop the objects of a list as an interrupt comes, before Python code runs again."""
    list(starmap(operator.call, [(ctypes.pythonapi.PyErr_SetInterrupt,), (holder.clear,)]))
    for _ in range(100):
        pass  # Python looks for an interrupt here, at the latest


def session(**options: Any) -> tenonnx.InferenceSession:
    nodes = [node("MatMul", "x W", "h"), node("Relu", "h", "y")]
    sizes = [[value(name, shape=(None, 64))] for name in "xy"]
    proto = model(nodes, *sizes, {"W": W})
    made = tenonnx.InferenceSession(
        proto.SerializeToString(), tenonnx.SessionOptions(**options), providers=["cpu"]
    )
    for _ in range(3):
        np.testing.assert_array_equal(made.run(None, {"x": X})[0], X @ W)
    return made


def test_the_interrupt_of_a_python_callback_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests below can fail."""
    lost: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    thing = Thing()
    holder, gone = [thing], []
    reference = when_gone(thing, lambda: gone.append(1))
    del thing
    drop_interrupted(holder)
    assert [each.exc_type for each in lost] == [KeyboardInterrupt]
    assert reference() is None
    assert not gone


def test_things_go_from_their_table() -> None:
    table, holder = WeakTable[str, Thing](), [Thing(), Thing()]
    table["a"], table["b"] = holder
    assert table.get("a") is holder[0]
    assert table.setdefault("a", Thing()) is holder[0]
    assert table.get("c") is None
    assert table.values() == holder
    kept = holder.pop()
    with pytest.raises(KeyboardInterrupt):
        drop_interrupted(holder)
    assert table.get("a") is None
    assert table.values() == [kept]
    assert len(table._references) == 1


def test_a_key_that_is_used_again_has_the_later_thing() -> None:
    table, first, second = WeakTable[str, Thing](), Thing(), Thing()
    table["a"] = first
    table["a"] = second
    del first
    assert table.get("a") is second


@pytest.mark.parametrize("name", ["session", "fixed", "addresses"])
def test_the_interrupt_is_raised(name: str) -> None:
    made = {
        "session": session,
        "fixed": lambda: fix([1]),
        "addresses": lambda: mark_addresses(W.copy()),
    }
    holder = [made[name]()]
    with pytest.raises(KeyboardInterrupt):
        drop_interrupted(holder)
    assert not holder


def test_an_array_at_the_place_of_one_that_was_fixed_is_not() -> None:
    for _ in range(100):
        assert is_fixed(fix([1, 2]))
        assert not is_fixed(np.array([1, 2]))


def test_an_interrupt_while_a_profile_is_written_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenonnx.interface.profiling import Profiler

    written = Profiler.write

    def interrupted(self: Profiler, prefix: str) -> str:
        if not list(tmp_path.iterdir()):
            (tmp_path / "begun").touch()
            signal.raise_signal(signal.SIGINT)
        return written(self, prefix)

    monkeypatch.setattr(Profiler, "write", interrupted)
    holder = [session(enable_profiling=True, profile_file_prefix=str(tmp_path / "trace"))]
    holder.clear()
    with pytest.raises(KeyboardInterrupt):
        time.sleep(100 * interruption.AGAIN_SECONDS)
    (trace,) = tmp_path.glob("trace*.json")
    assert json.loads(trace.read_text())
