"""Who is measured: onnxruntime, and tenonnx in the states that an installation can be in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tenonnx_cpu.jit.library import KERNELS_VARIABLE, kernels_folder

PEER = "onnxruntime"
INSTALLED, AGAIN, NUMPY = "installed", "again", "numpy"


@dataclass(frozen=True)
class State:
    """An engine, and what its process finds.

    Attributes:
        about: What it is, in words.
        engine: A key of ``bench.child.ENGINES``.
        variables: Returns variables of its environment, of an empty folder of its own.
        kept: Whether it finds what an earlier process has kept, besides kernels.
    """

    about: str
    engine: str
    variables: Callable[[Path], dict[str, str]]
    kept: bool = False


def _as_installed(folder: Path) -> dict[str, str]:
    return {KERNELS_VARIABLE: str(folder / "kernels")}


STATES = {
    PEER: State("onnxruntime", PEER, lambda _: {}),
    INSTALLED: State("tenonnx, kernels installed", "tenonnx", _as_installed),
    AGAIN: State("tenonnx, again", "tenonnx", _as_installed, kept=True),
    NUMPY: State("tenonnx, numpy alone", "tenonnx", lambda _: {"TENONNX_JIT": "0"}),
}


def cached(state: State) -> State:
    """Return what stands for a state of installed kernels where none are: the user's cache."""
    return dataclasses.replace(
        state,
        about=state.about.replace("kernels installed", "kernels in the cache"),
        variables=lambda _: {KERNELS_VARIABLE: kernels_folder()},
    )
