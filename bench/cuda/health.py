"""Recovery from a lost device: after a wild access every call of the process fails.

It is a plug-in of pytest, ``-p bench.cuda.health``: an xdist worker ends with the test that broke
the device, and a new worker runs the remaining tests.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

_failed: list[bool] = []


def is_broken() -> bool:
    """Return whether this process can use its device no more."""
    cupy: Any = sys.modules.get("cupy")
    if cupy is None:
        return False
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError:
        return True
    return False


def go_on_after(name: str) -> None:
    """Start this process's command anew, with what comes after a name."""
    command = (
        sys.orig_argv[: sys.orig_argv.index("--after")] if "--after" in sys.orig_argv else None
    )
    sys.stdout.flush()
    os.execv(sys.executable, [*(command or sys.orig_argv), "--after", name])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Trace a failure."""
    if report.failed:
        _failed.append(True)


def pytest_runtest_logfinish() -> None:
    """End a worker whose device is gone."""
    if _failed and "PYTEST_XDIST_WORKER" in os.environ and is_broken():
        os._exit(70)
    _failed.clear()
