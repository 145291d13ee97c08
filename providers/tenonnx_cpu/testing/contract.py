"""The contract of a plug-in's kernels: subclass ``KernelTests``, and run pytest."""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

from tenonnx import InferenceSession, SessionOptions
from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.aot.build import build_cached
from tenonnx_cpu.jit.code.cpu import target
from tenonnx_cpu.jit.packages import import_callers, package_of
from tenonnx_cpu.jit.runtime import KERNELS, VARIABLE, has_kernels, has_numba

Feeds = dict[str, np.ndarray[Any, Any]]

# The numbers of threads of sessions under test.
THREADS = (1, 3)

# A first run, a run that is captured at the latest, and one that is replayed.
RUNS = 3


class KernelTests:
    """Tests of all kernels of a package, which are compiled first if they have changed.

    Attributes:
        package: Its name.
        rtol: How far results may be from the operator's over numpy, as a share of each.
    """

    package: ClassVar[str]
    rtol: ClassVar[float] = 1e-6

    def cases(self) -> Iterable[tuple[onnx.ModelProto, Feeds]]:
        """Yield models, and what they are fed, that together run each kernel."""
        raise NotImplementedError("yield models whose nodes call the kernels, with their feeds")

    @pytest.fixture(autouse=True)
    def compiled(self) -> None:
        """Compile what has changed."""
        if (reason := _compile(self.package)) is not None:
            pytest.skip(reason)

    @pytest.mark.parametrize("threads", THREADS)
    def test_results_are_those_of_the_operator(
        self, threads: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nor do they change from run to run, as a kernel's captured launch is repeated."""
        for number, (model, feeds) in enumerate(self.cases()):
            monkeypatch.setenv(VARIABLE, "0")
            expected = _session(model, 1).run(None, feeds)
            monkeypatch.setenv(VARIABLE, "1")
            session = _session(model, threads)
            for _ in range(RUNS):
                for y, wanted in zip(session.run(None, feeds), expected, strict=True):
                    assert y.dtype == wanted.dtype, f"case {number}"
                    np.testing.assert_allclose(y, wanted, self.rtol, err_msg=f"case {number}")

    def test_every_kernel_runs(self) -> None:
        """Kernels without a case would be untested."""
        called = dict[str, str]()
        for model, _ in self.cases():
            called |= {name: each.state for name, each in _session(model, 1).kernels.items()}
        own = {str(each): each for each in KERNELS.values() if each.package == self.package}
        assert own, f"no module names a kernel: JitKernel(module, name, {self.package!r})"
        assert [name for name in own if name not in called] == [], "no case has a node of these"
        assert [name for name, each in own.items() if each.run is None] == [], "not compiled"

    @pytest.mark.parametrize("before", [False, True], ids=["behind", "before"])
    @pytest.mark.parametrize("threads", THREADS)
    @pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded by mprotect")
    def test_kernels_stay_in_their_arrays(self, threads: int, before: bool) -> None:
        """Each argument lies beside a page that ends the process that touches it."""
        test = type(self)
        module = "tenonnx_cpu.testing.child"
        given = (inspect.getfile(test), test.__qualname__, str(threads), str(int(before)))
        paths = os.pathsep.join(path for path in sys.path if path)
        done = subprocess.run(
            [sys.executable, "-m", module, *given],
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, f"case {done.stdout.split()[-1:]}: {done.stderr[-2000:]}"


@functools.cache
def _compile(name: str) -> str | None:
    """Compile what has changed of a package's kernels; return why that is impossible."""
    if (kind := target()) is None or not has_kernels():
        return "there are no kernels here: see tenonnx doctor"
    package = package_of(name)
    if library.find(package) is None:
        if not has_numba():
            return "numba is not installed, which compiles kernels"
        errors = build_cached(package, kind, lambda *_: None)
        assert not any(errors.values()), errors
    import_callers()
    return None


def _session(model: onnx.ModelProto, threads: int) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    return InferenceSession(model, options, providers=["cpu"])
