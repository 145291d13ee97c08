"""Clients' tensors: from bytes or JSON to arrays of the model's types, and back.

Only here a client's shape meets its data: an array is made once both fit each other, the model's
input and the limits. A shape alone allocates nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx import NodeArg
from tenonnx_serve import strings
from tenonnx_serve.datatypes import DTYPES, DType, datatype_of
from tenonnx_serve.errors import BadRequest, TooLarge
from tenonnx_serve.requests import Array, quoted

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A model's input or output, in the protocol's form.

    Attributes:
        name: Its name.
        datatype: The protocol's name of its type.
        shape: Sizes; -1 is any size.
        dtype: numpy's dtype.
        ranked: Whether the model declares a shape.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    dtype: DType
    ranked: bool = True


def spec_of(arg: NodeArg) -> TensorSpec | None:
    """Return a model's input or output in the protocol's form; ``None`` if that has no type."""
    if (datatype := datatype_of(arg.type)) is None:
        return None
    shape = tuple(size if isinstance(size, int) else -1 for size in arg.shape)
    # An empty shape is a scalar's, or that of an input of open rank.
    return TensorSpec(arg.name, datatype, shape, DTYPES[datatype], ranked=bool(shape))


def checked_shape(spec: TensorSpec, datatype: Any, shape: Any, most: int) -> tuple[int, ...]:
    """Return the shape of a client's input.

    Args:
        spec: The model's input.
        datatype: The client's datatype.
        shape: The client's shape.
        most: The most elements of a tensor.

    Raises:
        BadRequest: They do not fit the model's input.
        TooLarge: It has too many elements.
    """
    if datatype != spec.datatype:
        raise BadRequest(
            f"input '{spec.name}' has datatype {quoted(datatype)}; expected {spec.datatype}"
        )
    try:
        given = tuple(shape)
    except TypeError:
        given = (None,)
    for size in given:
        if type(size) is not int or size < 0:
            raise BadRequest(f"input '{spec.name}' has shape {quoted(shape)}; expected sizes")
    if spec.ranked and not fits(given, spec.shape):
        raise BadRequest(
            f"input '{spec.name}' has shape {quoted(list(given))}; expected {list(spec.shape)}"
        )
    if math.prod(size for size in given if size) > most:
        raise TooLarge(
            f"input '{spec.name}' has shape {quoted(list(given))}; expected at most {most} elements"
        )
    return given


def fits(given: Sequence[int], expected: Sequence[int]) -> bool:
    """Return whether a shape matches another one, where -1 is any size."""
    if len(given) != len(expected):
        return False
    return all(size == wanted or wanted == -1 for size, wanted in zip(given, expected, strict=True))


def from_bytes(spec: TensorSpec, shape: tuple[int, ...], data: Buffer) -> Array:
    """Return an array of a tensor's bytes, in C order and little-endian.

    It shares their memory, unless their address does not suit the dtype.

    Raises:
        BadRequest: There are more or fewer than the shape says.
    """
    count = math.prod(shape)
    if spec.datatype == "BYTES":
        return strings.unpacked(spec.name, data, count).reshape(shape)
    size = count * spec.dtype.itemsize
    if len(data) != size:
        raise BadRequest(
            f"input '{spec.name}' has {len(data)} bytes; expected {size} for "
            f"{spec.datatype} of shape {list(shape)}"
        )
    array = np.frombuffer(data, spec.dtype, count)
    if not array.flags.aligned:
        array = array.copy()
    if spec.datatype == "BOOL":  # numpy's booleans must be 0 or 1
        array = array.view(np.uint8) != 0
    return array.reshape(shape)


def split(name: str, size: Any, data: memoryview) -> tuple[memoryview, memoryview]:
    """Return the bytes of a client's input, and those that follow.

    Raises:
        BadRequest: There are fewer than the client says.
    """
    if type(size) is not int or not 0 <= size <= len(data):
        raise BadRequest(
            f"input '{name}' has binary_data_size {quoted(size)}, where {len(data)} bytes are left"
        )
    return data[:size], data[size:]


def to_bytes(array: Array) -> Buffer:
    """Return a tensor's bytes in C order; they share the array's memory if they can."""
    if array.dtype == object:
        return strings.packed(array)
    if array.nbytes <= 1 << 16:
        return array.tobytes()
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data  # bfloat16 has no buffer format
