"""A run of one operator: what ``record.py`` gives onnxruntime, and what the tests replay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper
from toy_decoders import GRAPHS

HOLDERS = ("encoder", "decoder", "init_decoder")
"""Graph attributes; a row gives the name of a toy model."""


@dataclass(frozen=True)
class Row:
    """A one-node model, its inputs and, once recorded, the answers.

    ``outputs`` are the numbers of those the node names. ``constants`` are inputs that are
    initializers. ``shared`` maps caches to the outputs that onnxruntime wants in the same memory.
    ``known(i, array)`` says where the answer i is specified; what is not becomes NaN.
    """

    op: str
    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[int] = (0,)
    name: str = ""
    domain: str = "com.microsoft"
    constants: Sequence[int] = ()
    shared: Mapping[int, int] = field(default_factory=dict)
    known: Callable[[int, Any], Any] | None = None
    rtol: float = 1e-4
    atol: float = 1e-5
    answers: Sequence[Any] = ()

    @property
    def id(self) -> str:
        return "-".join(filter(None, [self.op, self.name]))


def model_of(row: Row) -> onnx.ModelProto:
    """A model whose inputs are the row's, named by position."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(row.inputs)]
    outputs = [f"y{i}" if i in row.outputs else "" for i in range(max(row.outputs) + 1)]
    attributes = {
        name: GRAPHS[held]() if name in HOLDERS and isinstance(held, str) else held
        for name, held in row.attributes.items()
    }
    node = helper.make_node(row.op, names, outputs, domain=row.domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(
            f"x{i}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for i, array in enumerate(row.inputs)
        if array is not None and i not in row.constants
    ]
    weights = [
        numpy_helper.from_array(row.inputs[i], f"x{i}")
        for i in row.constants
        if row.inputs[i] is not None
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    return helper.make_model(
        helper.make_graph([node], "row", inputs, results, weights),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )


def feeds_of(row: Row) -> dict[str, Any]:
    return {
        f"x{i}": array
        for i, array in enumerate(row.inputs)
        if array is not None and i not in row.constants
    }


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write recorded rows: every array in one block of bytes, which compresses well."""
    block = bytearray()

    def put(array: Any) -> Any:
        if array is None:
            return None
        where = len(block)
        block.extend(np.ascontiguousarray(array).tobytes())
        return [array.dtype.name, list(array.shape), where]

    index = [
        {
            "op": row.op,
            "name": row.name,
            "domain": row.domain,
            "attributes": dict(row.attributes),
            "inputs": [put(array) for array in row.inputs],
            "outputs": list(row.outputs),
            "constants": list(row.constants),
            "rtol": row.rtol,
            "atol": row.atol,
            "answers": [put(array) for array in row.answers],
        }
        for row in rows
    ]
    text = json.dumps(index).encode()
    np.savez_compressed(
        path, index=np.frombuffer(text, np.uint8), block=np.frombuffer(bytes(block), np.uint8)
    )


def recorded(folder: Path) -> list[Row]:
    """All recorded rows; a file beside a model holds that one's answers."""
    paths = (p for p in sorted(folder.glob("*.npz")) if not p.with_suffix(".onnx").exists())
    return [row for path in paths for row in read(path)]


def read(path: Path) -> list[Row]:
    """The recorded rows of a file."""
    with np.load(path) as arrays:
        index, block = json.loads(arrays["index"].tobytes()), arrays["block"].tobytes()

    def get(place: Any) -> Any:
        if place is None:
            return None
        name, shape, where = place
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        count = int(np.prod(shape))
        return np.frombuffer(block, dtype, count, where).reshape(shape)

    return [
        Row(
            **(entry | {key: [get(place) for place in entry[key]] for key in ("inputs", "answers")})
        )
        for entry in index
    ]
