"""Who is measured: onnxruntime, and tenonnx in the states that an installation can be in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.cpu.turns import kernels

PEER = "onnxruntime"
INSTALLED, AGAIN, NUMPY, JIT = "installed", "again", "numpy", "jit"


@dataclass(frozen=True)
class State:
    """An engine, and what its process finds.

    Attributes:
        about: What it is, in words.
        engine: A key of ``bench.child.ENGINES``.
        variables: Returns variables of its environment, of an empty folder of its own.
        once: Whether one process must do, as each takes long.
        kept: Whether it finds what an earlier process has kept, besides kernels.
    """

    about: str
    engine: str
    variables: Callable[[Path], dict[str, str]]
    once: bool = False
    kept: bool = False


def _compiling(folder: Path) -> dict[str, str]:
    # Compiled for this very processor, so that installed kernels, if there are any, do not count.
    return {
        "TENONNX_JIT": "1",
        "TENONNX_PROCESSOR": "native",
        "NUMBA_CACHE_DIR": str(folder / "kernels"),
    }


STATES = {
    PEER: State("onnxruntime", PEER, lambda _: {}),
    INSTALLED: State("tenonnx, kernels installed", "tenonnx", lambda _: {"TENONNX_JIT": "1"}),
    AGAIN: State("tenonnx, again", "tenonnx", lambda _: {"TENONNX_JIT": "1"}, kept=True),
    NUMPY: State("tenonnx, numpy alone", "tenonnx", lambda _: {"TENONNX_JIT": "0"}),
    JIT: State("tenonnx, empty cache", "tenonnx", _compiling, once=True),
}


def cached(state: State) -> State:
    """Return what stands for a state of installed kernels where none are: the user's cache."""
    return dataclasses.replace(
        state,
        about=state.about.replace("kernels installed", "kernels in the cache"),
        variables=lambda _: {"TENONNX_JIT": "1", "NUMBA_CACHE_DIR": kernels()},
    )
