"""A process in which nothing else takes memory or gives it back."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def in_a_process_of_its_own(code: str) -> None:
    """Run code that imports what this process can.

    Raises:
        AssertionError: It ended with an error; the message is what it printed.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
