"""Tensors of BYTES: a length before each element; in JSON, text.

ONNX's strings are UTF-8. Other bytes are kept as surrogates, so that a model that passes them on
returns them unchanged.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tenonnx_serve.errors import BadRequest
from tenonnx_serve.requests import Array

_LENGTH = struct.Struct("<I")


def unpacked(name: str, data: bytes | bytearray | memoryview, count: int) -> Array:
    """Return the elements of bytes with a length before each element.

    Raises:
        BadRequest: The form or the number of elements is wrong.
    """
    if len(data) < count * _LENGTH.size:  # checked before an array of that size is made
        raise BadRequest(f"input '{name}' has {len(data)} bytes, too few for {count} elements")
    words, view, position = np.empty(count, object), memoryview(data), 0
    for index in range(count):
        start = position + _LENGTH.size
        if start > len(view):
            raise BadRequest(f"input '{name}' has {index} elements; expected {count}")
        position = start + _LENGTH.unpack_from(view, position)[0]
        if position > len(view):
            raise BadRequest(f"input '{name}': element {index} is cut off by the end of the data")
        words[index] = text_of(bytes(view[start:position]))
    if position != len(view):
        raise BadRequest(f"input '{name}' has bytes after its {count} elements")
    return words


def packed(array: Array) -> bytes:
    """Return the bytes of an array of strings, with a length before each element."""
    parts: list[bytes] = []
    for item in array.ravel():
        word = bytes_of(item)
        parts += (_LENGTH.pack(len(word)), word)
    return b"".join(parts)


def text_of(word: bytes) -> str:
    """Return an element as a Python string."""
    return word.decode("utf-8", "surrogateescape")


def bytes_of(item: Any) -> bytes:
    """Return the bytes of an element."""
    if isinstance(item, bytes):
        return item
    return str(item).encode("utf-8", "surrogateescape")


def of_array(items: list[bytes]) -> Array:
    """Return an array of ``bytes`` elements."""
    words = np.empty(len(items), object)
    words[:] = [text_of(item) for item in items]
    return words


def of_json(flat: list[Any]) -> Array:
    """Return an array of strings from JSON.

    Raises:
        TypeError: An element is not a string.
        ValueError: An element has half of a surrogate pair.
    """
    if set(map(type, flat)) - {str}:
        raise TypeError
    for item in flat:
        item.encode()
    words = np.empty(len(flat), object)
    words[:] = flat
    return words


def to_json(array: Array) -> list[str]:
    """Return an array's strings for JSON.

    Raises:
        BadRequest: One is not text.
    """
    words = [bytes_of(item) for item in array.ravel()]
    try:
        return [word.decode() for word in words]
    except UnicodeDecodeError:
        raise BadRequest("an output is not UTF-8: request it as binary_data") from None
