"""Interruptions of a run: another run in a signal's handler, and a fork."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import warnings
from types import FrameType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from running import floats, require_kernels, session

from models import node
from tenonnx_cpu.jit import scratch

require_kernels()

QUANTIZE = [node("DynamicQuantizeLinear", "x", "y y_scale y_zero_point")]
Array = np.ndarray[Any, Any]

KINDS = dict.fromkeys(("y", "y_zero_point"), TensorProto.UINT8)
FEW, MANY = floats(40), floats(9 << 15)  # which needs more of a thread's memory
ENDLESS = np.append(FEW, np.float32(np.inf))  # which the kernel refuses
TURNS = [ENDLESS, FEW, FEW, FEW]
LONGEST = 60.0
"""Seconds that runs of a microsecond may take."""


def answers(given: Any, x: Array) -> list[bytes]:
    return [array.tobytes() for array in given.run(None, {"x": x})]


class Interrupted(threading.Thread):
    """Runs a session in a thread of its own, and another before one of the lines of that."""

    def __init__(self, own: Any, other: Any, line: int) -> None:
        super().__init__(daemon=True)
        self.own, self.other, self.line = own, other, line
        self.lines: set[Any] = set()
        self.found: list[list[bytes]] = []
        self.handled: list[bytes] | None = None

    def run(self) -> None:
        sys.settrace(self.trace)
        for x in TURNS:
            self.found.append(answers(self.own, x))
        sys.settrace(None)

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if "tenonnx_cpu" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.lines.add((len(self.found), frame.f_code, frame.f_lineno))
            if len(self.lines) > self.line:
                sys.settrace(None)
                self.handled = answers(self.other, MANY)
        return self.trace


def test_a_session_runs_before_any_line_of_anothers_first_runs() -> None:
    def opened() -> Any:
        return session(QUANTIZE, {"x": FEW}, "y y_scale y_zero_point", kinds=KINDS)

    own, other = opened(), opened()
    wanted, handled = [answers(own, x) for x in TURNS], answers(other, MANY)
    for line in itertools.count():
        thread = Interrupted(opened(), other, line)
        thread.start()
        thread.join(LONGEST)
        assert not thread.is_alive(), f"stopped at line {line}"
        assert thread.found == wanted, f"interrupted at line {line}"
        if thread.handled is None:
            break
        assert thread.handled == handled
    assert line > 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_has_memory_though_a_thread_was_taking_some() -> None:
    busy = threading.Event()

    def take() -> None:
        with scratch._lock:
            busy.set()
            time.sleep(0.05)

    thread = threading.Thread(target=take)
    thread.start()
    busy.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking a process with threads
        child = os.fork()
    if not child:
        os._exit(not scratch._lock.acquire(timeout=5))
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
