"""Scenarios, and their large files."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from bench.builder import Builder, Feeds

# Different random numbers there are; larger weights repeat them.
POOL_ELEMENTS = 1 << 20

# Random numbers between where one weight's begin and where the next one's do.
STRIDE = 40_009

NO_PREPACKING = {"session.disable_prepacking": "1"}


class Bound(NamedTuple):
    """A column of tenonnx's row stays within a limit, or within a share of onnxruntime's."""

    column: str
    limit: float
    relative: bool = False


@dataclass(frozen=True)
class Case:
    """A model and how it is used.

    Attributes:
        name: Names the rows.
        model: The model's file.
        feeds: The inputs of one run each; runs of the last one are timed.
        best: Session configuration entries that serve onnxruntime's memory best here.
        exact: Whether the defaults compute with the numbers as they are; outputs with ``best`` are
            compared if not.
        processes: How many processes hold the model at once.
        bounds: What tenonnx promises.
    """

    name: str
    model: Path
    feeds: Sequence[Feeds]
    best: Mapping[str, str] = field(default_factory=lambda: NO_PREPACKING)
    exact: bool = True
    processes: int = 1
    bounds: Sequence[Bound] = ()

    @property
    def mib(self) -> float:
        """MiB of the model's file and the one with its weights."""
        files = (self.model, data_path(self.model))
        return sum(file.stat().st_size for file in files if file.exists()) / (1 << 20)


class Weights:
    """Writes random weights straight into a file of external data, at page boundaries.

    Args:
        model: The model's file, beside which the data will lie.
    """

    def __init__(self, model: Path) -> None:
        self.tensors: list[TensorProto] = []
        self._path = data_path(model)
        self._file = self._path.open("wb")
        self._random = np.random.default_rng(0)
        self._normal = self._random.standard_normal(POOL_ELEMENTS, dtype=np.float32)
        self._bytes = self._random.bytes(4 * POOL_ELEMENTS)

    def __enter__(self) -> Weights:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def normal(self, name: str, *shape: int, scale: float) -> str:
        """Add float32 numbers of a standard deviation."""
        return self._add(name, TensorProto.FLOAT, shape, (self._normal * np.float32(scale)).data, 4)

    def positive(self, name: str, *shape: int, scale: float) -> str:
        """Add float32 numbers, none below half of the scale and none above it."""
        pool = (1 + self._random.random(POOL_ELEMENTS, dtype=np.float32)) * np.float32(scale / 2)
        return self._add(name, TensorProto.FLOAT, shape, pool.data, 4)

    def uint4(self, name: str, *shape: int) -> str:
        """Add all sorts of 4-bit numbers."""
        return self._add(name, TensorProto.UINT4, shape, memoryview(self._bytes), 0.5)

    def initializers(self, builder: Builder) -> list[TensorProto]:
        """Return these and the small ones of a builder."""
        return [*builder.weights, *self.tensors]

    def _add(
        self, name: str, dtype: int, shape: Sequence[int], pool: memoryview, width: float
    ) -> str:
        offset = -(-self._file.tell() // mmap.PAGESIZE) * mmap.PAGESIZE
        self._file.seek(offset)
        left = length = math.ceil(math.prod(shape) * width)
        # Each begins at another place: an engine may find out that weights are the same.
        pool = pool.cast("B")
        start = 4 * STRIDE * len(self.tensors) % len(pool)
        while left:
            left -= self._file.write(pool[start : start + left])
            start = 0
        tensor = TensorProto(name=name, data_type=dtype, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self._path.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self.tensors.append(tensor)
        return name


def data_path(model: Path) -> Path:
    """The place of a model's external data."""
    return model.with_suffix(".data")


def scaled(size: int, scale: float) -> int:
    """Return a side of a matrix so that its area follows the scale, a multiple of 64."""
    return max(64, round(size * math.sqrt(scale) / 64) * 64)


def save(path: Path, graph: onnx.GraphProto, opset: int) -> None:
    """Write a model whose weights are in their file already."""
    imports = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)


def row(width: int, axes: int = 2) -> Feeds:
    """Return one random row as the input ``x`` of so many axes."""
    shape = (1,) * (axes - 1) + (width,)
    return {"x": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)}
