"""Places of weights, and stand-ins for devices."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from hypothesis import strategies as st

from tenonnx.weights.registry import SIDE_FILE_BYTES
from tenonnx.weights.storage import byte_size

FILE_BYTES = 8 * 4096
DTYPES = [d for d in ir.DataType if d not in (ir.DataType.UNDEFINED, ir.DataType.STRING)]
PACKED = [d for d in DTYPES if d.bitwidth < 8]
BIG = SIDE_FILE_BYTES // 4


class Host:
    id = "cpu"

    def upload(self, array: Any) -> Any:
        raise AssertionError(f"{array} is on the host already")


class Accelerator:
    def __init__(self, name: str = "gpu:0") -> None:
        self.id = name
        self.uploads: list[Any] = []

    def upload(self, array: Any) -> Any:
        self.uploads.append(array)
        return np.array(array)


@st.composite
def places(draw: st.DrawFn) -> tuple[int, int, ir.DataType, tuple[int, ...]]:
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=4)))
    nbytes = byte_size(dtype, shape)
    offset = draw(st.integers(0, FILE_BYTES - nbytes))
    return offset, nbytes, dtype, shape


def mapped_paths() -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [parts[5] for line in lines if len(parts := line.split(maxsplit=5)) == 6]


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def in_threads(work: Any, count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
