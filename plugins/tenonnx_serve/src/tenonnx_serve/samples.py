"""Inputs for warm-up in a model's configuration: Triton's ``model_warmup``.

A sample gives every input zeros, random values, or the bytes of a file in the model's folder
``warmup``. As in Triton, it has the sizes of one row if requests have rows, and the row is repeated
``batch_size`` times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tenonnx import InvalidArgument, NoSuchFile
from tenonnx_serve import layout
from tenonnx_serve.datatypes import CONFIG_TYPES
from tenonnx_serve.errors import BadRequest
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Array
from tenonnx_serve.tensors import TensorSpec, fits, from_bytes

FOLDER: Final = "warmup"


@dataclass(frozen=True)
class Sample:
    """Inputs of a run.

    Attributes:
        name: The sample's name in the configuration.
        feeds: The inputs.
        count: How often to run it, at least.
    """

    name: str
    feeds: dict[str, Array]
    count: int


def samples(model: Model, folder: Path, root: Path) -> Iterator[Sample]:
    """Yield the samples of a model's configuration.

    Args:
        model: The model.
        folder: The folder of its configuration.
        root: The folder that must contain its files.

    Raises:
        InvalidArgument: A sample does not fit the model.
        NoSuchFile: A file does not exist, or is outside the root.
    """
    for said in model.config.model_warmup:
        if missing := model.inputs.keys() - said.inputs.keys():
            raise InvalidArgument(f"{_where(model, said.name)} has no input {min(missing)!r}")
        feeds = {}
        for name in said.inputs:
            if (spec := model.takes.get(name)) is None:
                raise InvalidArgument(
                    f"{_where(model, said.name)}: the model has no input {name!r}"
                )
            row = _row(spec, said.inputs[name], folder, root)
            feeds[name] = _batch(model, spec, row, said)
        yield Sample(said.name, feeds, max(1, said.count))


def _where(model: Model, name: str) -> str:
    return f"model {model.name!r}, model_warmup {name!r}"


def _batch(model: Model, spec: TensorSpec, row: Array, said: Any) -> Array:
    """Return a sample's input: its row, repeated."""
    where = f"{_where(model, said.name)}: {spec.name!r}"
    if model.config.max_batch_size:
        shape: tuple[int, ...] = (max(1, said.batch_size), *row.shape)
    elif said.batch_size > 1:
        raise InvalidArgument(f"{where} has a batch_size, but the model has no max_batch_size")
    else:
        shape = row.shape
    if spec.ranked and not fits(shape, spec.shape):
        raise InvalidArgument(f"{where} has shape {list(shape)}; expected {list(spec.shape)}")
    return np.ascontiguousarray(np.broadcast_to(row, shape))


def _row(spec: TensorSpec, said: Any, folder: Path, root: Path) -> Array:
    """Return an input of one row; all of it if requests have no rows."""
    shape = tuple(said.dims)
    if said.data_type not in (0, CONFIG_TYPES[spec.datatype]) or min(shape, default=0) < 0:
        raise InvalidArgument(
            f"model_warmup: {spec.name!r} has type {said.data_type} and sizes {list(shape)}; "
            f"expected {spec.datatype} ({CONFIG_TYPES[spec.datatype]}) and no open size"
        )
    kind = said.WhichOneof("input_data_type")
    if kind == "input_data_file":
        try:
            return from_bytes(spec, shape, _file(said.input_data_file, folder, root).read_bytes())
        except BadRequest as error:
            raise InvalidArgument(f"model_warmup: {said.input_data_file}: {error}") from error
    if spec.dtype == object:
        return np.full(shape, "", object)
    if kind == "random_data":
        drawn: Array = np.random.default_rng(0).random(math.prod(shape)).reshape(shape)
        drawn = drawn if spec.dtype.kind in "fV" else drawn > 0.5
        return drawn.astype(spec.dtype)
    return np.zeros(shape, spec.dtype)


def _file(name: str, folder: Path, root: Path) -> Path:
    file = folder / FOLDER / name
    if Path(name).name != name or not file.is_file() or not layout.inside(file, root.resolve()):
        raise NoSuchFile(f"model_warmup: {folder.name} has no file {FOLDER}/{name}")
    return file
