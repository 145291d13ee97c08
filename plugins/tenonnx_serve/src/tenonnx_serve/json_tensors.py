"""JSON of inference requests and answers, in time and memory that its size bounds.

A tensor's elements become no Python object while the request is parsed: its text is kept, and read
in pieces once its shape is known. Between pieces the interpreter may run other threads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from msgspec import Meta, Raw, Struct

from tenonnx_serve import strings
from tenonnx_serve.errors import BadRequest
from tenonnx_serve.requests import NO_PARAMETERS, Array, Parameters, quoted
from tenonnx_serve.tensors import TensorSpec

# Bytes of text that are read at once: 2 ms.
PIECE_BYTES: Final = 1 << 16

# Elements that are written at once: 1 ms.
PIECE_ELEMENTS: Final = 1 << 14

# Bytes of a shape or of parameters, each element of which becomes an object.
MAX_SMALL_BYTES: Final = 1 << 16

# Inputs, and outputs, of a request: models with a cache for each layer have hundreds.
MAX_TENSORS: Final = 1 << 14

# Lists in lists of strings.
MAX_RANK: Final = 32

# Brackets in lists of lists of strings, each of which may become an object.
MAX_LISTS: Final = 1 << 16

# Bytes to leave out between numbers, once all is known to be JSON.
BLANKS: Final = b"[] \t\n\r"

OPENING: Final = re.compile(rb"[\[\s]*")


class Tensor(Struct):  # type: ignore[misc]  # the checker sees no msgspec
    """An input, or an output that is asked for."""

    name: str
    datatype: str = ""
    shape: Raw = Raw()
    parameters: Raw = Raw()
    data: Raw = Raw()


class Body(Struct):  # type: ignore[misc]  # likewise
    """The JSON of a request."""

    id: str = ""
    parameters: Raw = Raw()
    inputs: Annotated[list[Tensor], Meta(max_length=MAX_TENSORS)] = []
    outputs: Annotated[list[Tensor], Meta(max_length=MAX_TENSORS)] = []


Parameter = str | int | float | bool | None

_BODY = msgspec.json.Decoder(Body)
_SHAPE = msgspec.json.Decoder(list[int])
_PARAMETERS = msgspec.json.Decoder(dict[str, Parameter])
_FLOATS = msgspec.json.Decoder(list[float | Literal["NaN", "Infinity", "-Infinity"]])
_INTEGERS = msgspec.json.Decoder(list[int])
_BOOLEANS = msgspec.json.Decoder(list[bool | Literal[0, 1]])
_FAILURES = (msgspec.MsgspecError, RecursionError, UnicodeError)


def parsed(text: bytes | bytearray | memoryview) -> Body:
    """Return a request's JSON.

    Raises:
        BadRequest: It is not JSON, or has other fields than the protocol.
    """
    try:
        found: Body = _BODY.decode(text)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the request's JSON is wrong: {error}") from None
    except _FAILURES as error:
        raise BadRequest(
            f"the body is not JSON: {error}; NaN and infinities are strings, or binary tensors"
        ) from None
    return found


def parameters_of(raw: Raw) -> Parameters:
    """Return parameters by name.

    Raises:
        BadRequest: They are not an object of strings, numbers and booleans, or are too many.
    """
    expected = "an object of strings, numbers and booleans"
    found: Parameters = _small(_PARAMETERS, raw, "parameters", expected)
    return found


def shape_of(name: str, raw: Raw) -> list[int]:
    """Return an input's shape.

    Raises:
        BadRequest: It is not a list of integers.
    """
    found: list[int] = _small(_SHAPE, raw, f"input '{name}' has a shape that", "sizes", [None])
    return found


def _small(decoder: Any, raw: Raw, what: str, expected: str, default: Any = NO_PARAMETERS) -> Any:
    text = memoryview(raw)
    if not text:
        return default
    if len(text) <= MAX_SMALL_BYTES:
        try:
            return decoder.decode(text)
        except _FAILURES:
            pass
    found = quoted(bytes(text[:100]).decode(errors="replace"))
    raise BadRequest(f"{what} are {found}; expected {expected}")


def array_of(spec: TensorSpec, shape: tuple[int, ...], raw: Raw) -> Array:
    """Return an array of a JSON list, flat or nested.

    Raises:
        BadRequest: It is not a list, or has the wrong number or type of elements.
    """
    text, count = bytes(raw).strip(), math.prod(shape)
    try:
        if spec.datatype == "BYTES":
            flat: Any = _strings(text, count)
        else:
            flat = _numbers(spec, text, count)
    except (*_FAILURES, TypeError, ValueError, OverflowError):
        raise BadRequest(f"input '{spec.name}' has elements that are not {spec.datatype}") from None
    if flat is None:
        raise BadRequest(
            f"input '{spec.name}': expected a list of {count} elements, flat or nested as shape "
            f"{list(shape)}"
        )
    found: Array = flat.reshape(shape)
    return found


def _numbers(spec: TensorSpec, text: bytes, count: int) -> Array | None:
    """Return the elements of a list of numbers; ``None`` if their number is wrong."""
    if text[:1] != b"[" or not 0 <= count <= len(text) // 2:
        return None
    if not count:  # empty lists, maybe nested
        return None if text.translate(None, BLANKS + b",") else np.empty(0, spec.dtype)
    kind = spec.dtype.kind
    decoder, dtype = {
        "b": (_BOOLEANS, spec.dtype),
        "i": (_INTEGERS, spec.dtype),
        "u": (_INTEGERS, spec.dtype),
    }.get(kind, (_FLOATS, np.dtype(np.float64)))
    numbers, start = np.empty(count, dtype), 0  # whose memory is not touched yet
    for piece in _pieces(text):
        elements = decoder.decode(b"[%b]" % piece.translate(None, BLANKS))
        if start + len(elements) > count:
            return None
        numbers[start : start + len(elements)] = elements
        start += len(elements)
    if start < count:
        return None
    with np.errstate(over="ignore"):
        return numbers.astype(spec.dtype, copy=False)


def _pieces(text: bytes) -> Iterator[bytes]:
    """Yield pieces of a text that end where a comma is."""
    start = 0
    while start < len(text):
        end = text.find(b",", start + PIECE_BYTES)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


def _strings(text: bytes, count: int) -> Array | None:
    """Return the elements of a list of strings; ``None`` if their number is wrong."""
    rank = OPENING.match(text)[0].count(b"[")  # type: ignore[index]  # it matches any text
    if not 0 < rank <= MAX_RANK or (rank > 1 and text.count(b"[") > MAX_LISTS):
        return None
    kind: Any = str
    for _ in range(rank):
        kind = list[kind]
    flat = msgspec.json.decode(text, type=kind)
    for _ in range(rank - 1):
        flat = [item for part in flat for item in part]
    return strings.of_json(flat) if len(flat) == count else None


def text_of(array: Array) -> list[bytes]:
    """Return the pieces of a flat JSON list of elements; NaN and infinities are ``null``.

    Raises:
        BadRequest: It has bytes that are not text.
    """
    if array.dtype == object:
        return [msgspec.json.encode(strings.to_json(array))]
    if array.dtype.isbuiltin != 1:  # bfloat16
        array = array.astype(np.float32)
    flat = array.reshape(-1)
    pieces = [msgspec.json.encode(flat[:PIECE_ELEMENTS].tolist())]
    for start in range(PIECE_ELEMENTS, len(flat), PIECE_ELEMENTS):
        pieces[-1] = pieces[-1][:-1]
        piece: bytes = msgspec.json.encode(flat[start : start + PIECE_ELEMENTS].tolist())
        pieces += (b",", piece[1:])
    return pieces
