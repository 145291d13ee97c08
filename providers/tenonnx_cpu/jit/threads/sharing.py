"""Shares of work: how much of it a task takes. Kernels and what launches them count alike."""

from __future__ import annotations

# Tasks of a loop for each thread that shares it.
TASKS = 4

# The work of a task in elements, if there is a choice: some milliseconds.
MAX_TASK_ELEMENTS = 1 << 22


def shared_out(units: int, work: int, enough: int, threads: int) -> tuple[int, int]:
    """Return how many of some units of work a task takes, and how many threads share the tasks.

    It is one thread if there is less to do than is worth waking a second one; else there are
    several tasks a thread, so that none waits for the slowest at the end. No task is so long that
    a run could not be stopped soon.
    """
    most = max(1, units * MAX_TASK_ELEMENTS // max(work, MAX_TASK_ELEMENTS))
    if threads == 1 or units < 2 or work < enough:
        return min(units, most), 1
    return max(1, min(most, units // (TASKS * threads))), threads
