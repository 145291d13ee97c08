"""Detects a worker that hangs: it answers nothing and does nothing.

The supervisor pings a worker's event loop every second. Loads and runs are in threads, so the loop
answers meanwhile. Code that holds the interpreter for long, such as reading a large model, delays
answers, but it uses the processor or waits for the disk. So a worker that is silent for a while and
does neither is hanging: it was stopped, or it is in a deadlock. A worker that is silent for the
longest time of a load is hanging, too.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Protocol

# Seconds between two pings.
PING_SECONDS = 1.0

# Seconds of CPU time between two pings below which a process does nothing.
IDLE_CPU_SECONDS = 0.05


class WatchedWorker(Protocol):
    """A worker as the watch needs it."""

    pid: int

    async def beat(self) -> None:
        """Return once the worker answers; raise ``ChannelClosed`` if it has gone."""

    def kill(self, why: str = "") -> None:
        """End it."""


async def watch(worker: WatchedWorker, idle_seconds: float, longest: float) -> None:
    """Kill a worker that hangs; return when the worker has ended.

    Time is counted in this process's own pings: if the supervisor itself was stopped together with
    its workers, they have their full time again when all go on.

    Args:
        worker: The worker.
        idle_seconds: How long it may be silent while it does nothing.
        longest: How long it may be silent at all.
    """
    while True:
        beat = asyncio.ensure_future(worker.beat())
        try:
            silent = await _silence(beat, worker.pid, idle_seconds, longest)
        finally:
            beat.cancel()
        if silent:
            worker.kill(f"did not answer for {silent:g} s and was killed")
            return
        if beat.exception() is not None:  # it has gone
            return
        await asyncio.sleep(PING_SECONDS)


async def _silence(beat: asyncio.Future[None], pid: int, idle: float, longest: float) -> float:
    """Return 0 when a worker has answered; the seconds of its silence if it hangs."""
    looked, moved, used = 0.0, 0.0, _used(pid)
    while not (await asyncio.wait([beat], timeout=PING_SECONDS))[0]:
        looked += PING_SECONDS
        now = _used(pid)
        if now - used > IDLE_CPU_SECONDS or _waits_for_disk(pid):
            moved, used = looked, now
        if looked - moved >= idle or looked >= longest:
            return looked
    return 0.0


def _stat(place: Path) -> list[str]:
    """Return the system's fields on a process or thread, from its state on."""
    try:
        return (place / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it is gone
        return []


def _used(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    stat = _stat(Path(f"/proc/{pid}"))
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK") if stat else 0.0


def _waits_for_disk(pid: int) -> bool:
    """Return whether a thread waits for the disk, as one that loads a model from a slow disk."""
    threads = Path(f"/proc/{pid}/task").glob("*")
    return any(_stat(thread)[:1] == ["D"] for thread in threads)
