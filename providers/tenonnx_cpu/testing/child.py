"""A process that runs kernels in guarded memory: see ``KernelTests``.

``python -m tenonnx_cpu.testing.child FILE CLASS THREADS BEFORE`` prints the number of each case
before it runs it.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import re
import sys
from typing import Any

import numpy as np

from tenonnx import GraphOptimizationLevel, InferenceSession, SessionOptions
from tenonnx_cpu.jit.packages import import_callers
from tenonnx_cpu.jit.runtime import KERNELS
from tenonnx_cpu.testing.guarded_memory import guarded_copy

# Names of sizes from which on work is worth a second thread.
THRESHOLD = re.compile(r"MIN_\w+_PER_THREAD")


def main(file: str, name: str, threads: int, before: bool) -> None:
    """Run all cases of a test."""
    faulthandler.enable()
    spec = importlib.util.spec_from_file_location("cases", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    test = getattr(module, name)()
    import_callers()
    _share_everything(test.package)
    for each in KERNELS.values():
        if each.package == test.package and each.run is not None:
            each.run = _Guarded(each.run, before=before)
    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL  # no captures
    for number, (model, feeds) in enumerate(test.cases()):
        print(number, flush=True)
        InferenceSession(model, options, providers=["cpu"]).run(None, feeds)


class _Guarded:
    """A kernel that works in copies of its arguments, and copies back what it may have written."""

    def __init__(self, run: Any, *, before: bool) -> None:
        self._run = run
        self._before = before

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        places = [n for n, each in enumerate(arguments) if isinstance(each, np.ndarray)]
        given = list(arguments)
        for place in places:
            given[place] = guarded_copy(arguments[place], before=self._before)
        result = self._run(*given)
        for place in places:
            if arguments[place].flags.writeable:
                arguments[place][...] = given[place]
        return result


def _share_everything(package: str) -> None:
    """Have all work of a package's kernels shared out among threads, however little it is."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package:
            for constant in filter(THRESHOLD.fullmatch, list(vars(module))):
                setattr(module, constant, 1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1")
