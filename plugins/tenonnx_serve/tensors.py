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
from tenonnx_serve.requests import Array, shown

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
    """Returns a model's input or output in the protocol's form; ``None`` if that has no type."""
    if (datatype := datatype_of(arg.type)) is None:
        return None
    shape = tuple(size if isinstance(size, int) else -1 for size in arg.shape)
    # An empty shape is a scalar's, or that of an input of open rank.
    return TensorSpec(arg.name, datatype, shape, DTYPES[datatype], ranked=bool(shape))


def checked_shape(spec: TensorSpec, datatype: Any, shape: Any, most: int) -> tuple[int, ...]:
    """Returns the shape of a client's input.

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
            f"input '{spec.name}' has datatype {shown(datatype)}; expected {spec.datatype}"
        )
    try:
        given = tuple(shape)
    except TypeError:
        given = (None,)
    for size in given:
        if type(size) is not int or size < 0:
            raise BadRequest(f"input '{spec.name}' has shape {shown(shape)}; expected sizes")
    if spec.ranked and not fits(given, spec.shape):
        raise BadRequest(
            f"input '{spec.name}' has shape {shown(list(given))}; expected {list(spec.shape)}"
        )
    if math.prod(size for size in given if size) > most:
        raise TooLarge(
            f"input '{spec.name}' has shape {shown(list(given))}; expected at most {most} elements"
        )
    return given


def fits(given: Sequence[int], expected: Sequence[int]) -> bool:
    """Says whether a shape matches another one, where -1 is any size."""
    if len(given) != len(expected):
        return False
    return all(size == wanted or wanted == -1 for size, wanted in zip(given, expected, strict=True))


def from_bytes(spec: TensorSpec, shape: tuple[int, ...], data: Buffer) -> Array:
    """Returns an array of a tensor's bytes, in C order and little-endian.

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


def from_json(spec: TensorSpec, shape: tuple[int, ...], data: Any) -> Array:
    """Returns an array of a JSON list, flat or nested.

    Raises:
        BadRequest: It is not a list, or has the wrong number or type of elements.
    """
    flat = flattened(data, math.prod(shape))
    if flat is None:
        raise BadRequest(
            f"input '{spec.name}': expected a list of {math.prod(shape)} elements, flat or nested "
            f"as shape {list(shape)}"
        )
    try:
        array = _converted(spec, flat)
    except (TypeError, ValueError, OverflowError):
        raise BadRequest(f"input '{spec.name}' has elements that are not {spec.datatype}") from None
    return array.reshape(shape)


def flattened(data: Any, count: int) -> list[Any] | None:
    """Returns the elements of nested lists; ``None`` if their number is wrong."""
    if not isinstance(data, list):
        return None
    while data and isinstance(data[0], list):
        if sum(len(part) if isinstance(part, list) else 1 for part in data) > count:
            return None
        if not all(isinstance(part, list) for part in data):
            return None
        data = [item for part in data for item in part]
    return data if len(data) == count else None


def _converted(spec: TensorSpec, flat: list[Any]) -> Array:
    """Returns an array of elements from JSON.

    Raises:
        TypeError, ValueError, OverflowError: An element has another type, or does not fit.
    """
    if spec.datatype == "BYTES":
        return strings.of_json(flat)
    kinds = set(map(type, flat))
    if spec.datatype == "BOOL":
        if kinds - {bool, int} or not all(item in (0, 1) for item in flat):
            raise TypeError
        return np.array(flat, np.bool_)
    if spec.dtype.kind in "iu":
        if kinds - {int}:
            raise TypeError
        return np.array(flat, spec.dtype)
    if kinds - {int, float}:
        raise TypeError
    wide = np.array(flat, np.float64)
    if spec.dtype == np.float64:
        return wide
    with np.errstate(over="ignore"):
        return wide.astype(spec.dtype)


def to_bytes(array: Array) -> Buffer:
    """Returns a tensor's bytes in C order; they share the array's memory if they can."""
    if array.dtype == object:
        return strings.packed(array)
    if array.nbytes <= 1 << 16:
        return array.tobytes()
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data  # bfloat16 has no buffer format


def to_json(array: Array) -> list[Any]:
    """Returns a tensor's elements as a flat list for JSON.

    Raises:
        BadRequest: It has bytes that are not text.
    """
    if array.dtype == object:
        return strings.to_json(array)
    if array.dtype.kind in "biuf" and array.dtype.isbuiltin == 1:
        return array.ravel().tolist()
    return array.astype(np.float32).ravel().tolist()
