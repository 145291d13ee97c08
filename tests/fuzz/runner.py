"""Cases in processes of their own, under limits of time and memory."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fuzz.drawing import Drawn
from fuzz.examining import Finding, compare, examine

SECONDS = 10.0
"""Of processor time that a case may take."""

WAITING = 60.0
"""Seconds on the clock after which a case that computes nothing hangs."""

POLL = 0.5
"""Seconds between two looks at a process."""

MEGABYTES = 500
"""Bytes that a process may allocate beyond those that it starts with."""

FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Ran:
    """A case that was run: what is wrong, how far it came, seconds, peak of memory in bytes."""

    drawn: Drawn
    finding: Finding | None
    state: str
    seconds: float
    peak: int


def run_batch(
    cases: Sequence[Callable[[], Drawn]],
    kernels: bool,
    seconds: float = SECONDS,
    *,
    comparing: bool = False,
) -> Iterator[Ran]:
    """Yield what became of cases, each process taking those that the one before it left.

    Args:
        cases: Each makes a case, in the process that runs it.
        kernels: Use them; they should be compiled.
        seconds: That a case may take.
        comparing: Run them node after node on numpy, too, and compare.
    """
    left = list(cases)
    while left:
        done = 0
        for ran in _run_process(left, kernels, seconds, comparing):
            done += 1
            yield ran
        left = left[max(done, 1) :]


def _run_process(
    cases: Sequence[Callable[[], Drawn]], kernels: bool, seconds: float, comparing: bool
) -> Iterator[Ran]:
    """Yield until all are done, or the process is ended by one of them."""
    receiver, sender = FORK.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile("r", suffix=".log", errors="replace") as log:
        arguments = (sender, cases, kernels, comparing, log.name)
        process = FORK.Process(target=_work, args=arguments, daemon=True)
        process.start()
        sender.close()
        drawn: Drawn | None = None
        try:
            for _ in range(2 * len(cases)):
                reply = _reply(receiver, process.pid or 0, seconds)
                if isinstance(reply, Drawn):
                    drawn = reply
                    continue
                if isinstance(reply, Ran):
                    yield reply
                    continue
                if reply == "hang":
                    os.kill(process.pid or 0, signal.SIGUSR1)  # it says where it is
                    time.sleep(0.5)
                    process.kill()
                process.join()
                if drawn is None or reply not in ("hang", "crash"):
                    raise RuntimeError(f"no case was drawn: {reply}\n{log.read()}")
                yield Ran(drawn, _ended(reply, process.exitcode or 0, log.read()), reply, 0, 0)
                return
        finally:
            process.kill()
            process.join()
            receiver.close()


def _reply(receiver: Connection, pid: int, seconds: float) -> Any:
    """Return what a process says next, or ``hang`` or ``crash``."""
    spent = _processor_seconds(pid)
    for _ in range(int(WAITING / POLL)):  # and not by the clock, which goes on while all is stopped
        try:
            if receiver.poll(POLL):
                return receiver.recv()
        except (EOFError, ConnectionResetError):
            return "crash"
        if _processor_seconds(pid) - spent > seconds:
            return "hang"
    return "hang"


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ended(kind: str, code: int, log: str) -> Finding:
    """Return what to say of a process that did not come to an end by itself."""
    frames = re.findall(r'File "([^"]+)", line \d+ in (\w+)', log)
    inner = next((f for f in frames if "tenonnx" in f[0]), frames[0] if frames else ("?", "?"))
    how = "" if kind == "hang" else signal.Signals(-code).name if code < 0 else f"exit {code}"
    where = f"{how} {Path(inner[0]).name}:{inner[1]}"
    return Finding(kind, where, f"{how}\n{log[-3000:]}")


def _work(
    sender: Connection,
    cases: Sequence[Callable[[], Drawn]],
    kernels: bool,
    comparing: bool,
    log: str,
) -> None:
    """Run cases, in a process of its own: says each before it is run, and what became of it."""
    with open(log, "w") as file:  # noqa: PTH123 - a descriptor for good
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.environ["TENONNX_JIT"] = "1" if kernels else "0"
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = _status("VmData") + (MEGABYTES << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for make in cases:
        try:
            drawn = make()
        except Exception:
            sender.send(traceback.format_exc())
            raise
        sender.send(drawn)
        before = _status("VmRSS")
        _reset_peak()
        start = time.perf_counter()
        found, state = examine(drawn, kernels)
        if found is None and comparing and state != "refused":
            found = compare(drawn)
        peak = _status("VmHWM") - before
        if found is None and peak > MEGABYTES << 20:
            found = Finding("memory", drawn.seed, f"{peak >> 20} MB")
        sender.send(Ran(drawn, found, state, time.perf_counter() - start, peak))
        gc.collect()
    sender.close()


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", text)[1]) << 10  # type: ignore[index]


def _reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # then the peak is that of all cases so far
        return
