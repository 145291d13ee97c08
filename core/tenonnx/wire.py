"""Finds the weights in a serialised model without parsing them.

A model's bytes are mostly tensors. ``skim`` walks the protobuf wire format, steps over whatever
is short, and copies all but the tensors' contents into a skeleton: the same model, in which a
long tensor is external data at an offset of the very buffer that was read.

https://protobuf.dev/programming-guides/encoding/; field numbers are those of ``onnx.proto``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from tenonnx.errors import InvalidProtobuf

THRESHOLD = 128
"""Tensor contents shorter than this stay in the skeleton."""

MAX_DEPTH = 100  # protobuf's own limit on nested messages

Message: TypeAlias = Literal[
    "Model", "Training", "Function", "Graph", "Node", "Attribute", "Tensor"
]

NESTED: Mapping[Message, Mapping[int, Message]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node", 11: "Attribute"},
    "Graph": {1: "Node", 5: "Tensor"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph"},
    "Tensor": {},
}
"""Fields whose messages may hold tensors. Sparse tensors are left as they are."""

# Fields of TensorProto, and the element types whose packed fields are the elements' bytes.
DATA_TYPE, FLOAT_DATA, RAW_DATA, DOUBLE_DATA, EXTERNAL_DATA, DATA_LOCATION = 2, 4, 9, 10, 13, 14
PACKED_TYPE = {FLOAT_DATA: 1, DOUBLE_DATA: 11}
EXTERNAL = 1

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Pieces: TypeAlias = list[bytes | memoryview]


class Skeleton(NamedTuple):
    """A model without its long tensors.

    Attributes:
        data: The serialised model.
        location: The external data's location that stands for the buffer itself. It is drawn at
            random, so no model can name it.
    """

    data: bytes
    location: str


class Field(NamedTuple):
    """One field of a message: ``buffer[start:stop]``, its content ``buffer[body:stop]``."""

    number: int
    wire: int
    start: int
    body: int
    stop: int


def skim(buffer: memoryview, threshold: int = THRESHOLD) -> Skeleton:
    """Returns the skeleton of a serialised ``ModelProto``.

    Takes time in proportion to the number of messages, not of bytes, and copies only what the
    skeleton has. Messages no longer than the threshold are not looked into.

    Raises:
        InvalidProtobuf: At which byte the buffer stops being a model.
    """
    location = f"buffer:{os.urandom(16).hex()}"
    scan = _Scan(buffer, threshold, location)
    pieces = scan.message(0, len(buffer), "Model", 0)
    return Skeleton(bytes(buffer) if pieces is None else b"".join(pieces), location)


class _Scan:
    def __init__(self, buffer: memoryview, threshold: int, location: str) -> None:
        self.buffer = buffer
        self.threshold = threshold
        self.location = location.encode()

    def message(self, start: int, stop: int, kind: Message, depth: int) -> Pieces | None:
        """Returns what replaces a message; ``None`` if it stays as it is."""
        if depth > MAX_DEPTH:
            raise _error(start, f"at most {MAX_DEPTH} nested messages", "one more")
        if kind == "Tensor":
            return self.tensor(start, stop)
        buffer, nested = self.buffer, NESTED[kind]
        pieces: Pieces = []
        copied = start
        for field in self.long_fields(start, stop, nested):
            inner = self.message(field.body, field.stop, nested[field.number], depth + 1)
            if inner is not None:
                tag = field.number << 3 | BYTES
                pieces += [buffer[copied : field.start], _encode(tag, sum(map(len, inner)))]
                pieces += inner
                copied = field.stop
        return [*pieces, buffer[copied:stop]] if pieces else None

    def long_fields(self, start: int, stop: int, nested: Mapping[int, Message]) -> Iterator[Field]:
        """Yields the fields to look into: nested messages longer than the threshold.

        The hot loop: one turn for every field of every long message.
        """
        buffer, threshold = self.buffer, self.threshold
        position = start
        while position < stop:
            begin = position
            tag = buffer[position]
            position += 1
            if tag > 127:
                tag, position = self.varint(begin, stop)
            wire = tag & 7
            if wire == BYTES:
                length, position = self.length(position, stop)
                if length > threshold and tag >> 3 in nested:
                    yield Field(tag >> 3, wire, begin, position, position + length)
                position += length
            else:
                position = self.skip(tag, begin, position, stop)
                if tag >> 3 in nested:
                    raise _error(begin, f"a message in field {tag >> 3}", f"wire type {wire}")

    def tensor(self, start: int, stop: int) -> Pieces | None:
        """Returns what replaces a ``TensorProto``; ``None`` if its content is short."""
        fields = list(self.fields(start, stop))
        data_type = location = 0
        for field in fields:
            if field.wire == VARINT and field.number == DATA_TYPE:
                data_type = self.varint(field.body, stop)[0]
            elif field.wire == VARINT and field.number == DATA_LOCATION:
                location = self.varint(field.body, stop)[0]
        content = [f for f in fields if f.number in (RAW_DATA, FLOAT_DATA, DOUBLE_DATA)]
        if location == EXTERNAL or len(content) != 1:
            return None
        (field,) = content
        if field.wire != BYTES or field.stop - field.body < self.threshold:
            return None
        if field.number != RAW_DATA and PACKED_TYPE[field.number] != data_type:
            return None
        return [
            self.buffer[start : field.start],
            self.buffer[field.stop : stop],
            self.reference(field),
        ]

    def reference(self, field: Field) -> bytes:
        """Returns the fields of a tensor that say where in the buffer its content is."""
        entries = (
            (b"location", self.location),
            (b"offset", b"%d" % field.body),
            (b"length", b"%d" % (field.stop - field.body)),
        )
        encoded = [_encode_bytes(1, key) + _encode_bytes(2, value) for key, value in entries]
        external = b"".join(_encode_bytes(EXTERNAL_DATA, entry) for entry in encoded)
        return external + bytes([DATA_LOCATION << 3 | VARINT, EXTERNAL])

    def fields(self, start: int, stop: int) -> Iterator[Field]:
        """Yields every field of a message."""
        position = start
        while position < stop:
            begin = position
            tag, body = self.varint(begin, stop)
            wire = tag & 7
            if wire == BYTES:
                length, body = self.length(body, stop)
                position = body + length
            else:
                position = self.skip(tag, begin, body, stop)
            yield Field(tag >> 3, wire, begin, body, position)

    def skip(self, tag: int, begin: int, position: int, stop: int) -> int:
        """Returns the end of a field without a length."""
        wire = tag & 7
        if wire == VARINT:
            return self.varint(position, stop)[1]
        if wire not in (FIXED32, FIXED64) or tag < 8:
            raise _error(begin, "the tag of a field", f"field {tag >> 3} of wire type {wire}")
        end = position + (4 if wire == FIXED32 else 8)
        if end > stop:
            raise _error(position, f"{end - position} bytes", f"{stop - position}")
        return end

    def length(self, position: int, stop: int) -> tuple[int, int]:
        """Returns the length that stands at a position, and where what it measures begins."""
        length, body = self.varint(position, stop)
        if length > stop - body:
            raise _error(position, f"a length up to {stop - body}", str(length))
        return length, body

    def varint(self, position: int, stop: int) -> tuple[int, int]:
        """Returns the number that stands at a position, and where it ends."""
        buffer = self.buffer
        value = shift = 0
        for end in range(position, min(position + 10, stop)):
            byte = buffer[end]
            value |= (byte & 127) << shift
            if byte < 128:
                return value, end + 1
            shift += 7
        found = "more" if position + 10 <= stop else "the end"
        raise _error(position, "a number of at most 10 bytes", found)


def _encode(tag: int, length: int) -> bytes:
    return _varint(tag) + _varint(length)


def _encode_bytes(number: int, content: bytes) -> bytes:
    return _encode(number << 3 | BYTES, len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _error(offset: int, expected: str, found: str) -> InvalidProtobuf:
    return InvalidProtobuf(f"at byte {offset}: expected {expected}, found {found}")
