"""The places of weights in a serialized model, found without parsing them.

A model's bytes are mostly tensors. ``skim`` walks the protobuf wire format, steps over whatever
is short, and copies all but the tensors' contents into a skeleton: the same model, in which a
long tensor is external data at an offset of the very buffer that was read.

https://protobuf.dev/programming-guides/encoding/; field numbers are those of ``onnx.proto``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from tenonnx.errors import InvalidProtobuf

if TYPE_CHECKING:
    from tenonnx.formats.long_lists import LongList

# The first bytes of files that have a model's plan beside it: ``tenonnx.formats.compiled_file``.
COMPILED = b"tenonnx compiled"

# Tensor contents shorter than this stay in the skeleton.
MIN_REFERENCED_BYTES = 128

MAX_NESTED_MESSAGES = 100  # protobuf's own limit on nested messages

Message: TypeAlias = Literal[
    "Model", "Training", "Function", "Graph", "Node", "Attribute", "Tensor"
]

# Fields whose messages may hold tensors. Sparse tensors are left as they are.
NESTED: Mapping[Message, Mapping[int, Message]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node", 11: "Attribute"},
    "Graph": {1: "Node", 5: "Tensor"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph"},
}

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

NESTED_BY_TAG = {
    kind: {number << 3 | BYTES: inner for number, inner in fields.items()}
    for kind, fields in NESTED.items()
}


# The tag of an attribute's type, field 20: the last that there is outside of functions.
TYPE = b"\xa0\x01"

# Types of attributes that are numbers or words, and lists of them.
PLAIN_ATTRIBUTE_TYPES = frozenset({1, 2, 3, 6, 7, 8})

# Bytes of an attribute up to which its list is left to protobuf.
MAX_PROTOBUF_LIST_BYTES = 4096

DOC_STRING = 13 << 3 | BYTES

# Tags of TensorProto: a field's number, shifted, and its wire type.
DATA_TYPE, DATA_LOCATION = 2 << 3 | VARINT, 14 << 3 | VARINT
RAW_DATA, FLOAT_DATA, DOUBLE_DATA = 9 << 3 | BYTES, 4 << 3 | BYTES, 10 << 3 | BYTES
EXTERNAL = 1
# Packed fields that are the elements' bytes, if the tensor is of this type.
PACKED_ELEMENT_TYPES = {FLOAT_DATA: 1, DOUBLE_DATA: 11}

Pieces: TypeAlias = list[bytes | memoryview]


class Skeleton(NamedTuple):
    """A model without its long tensors.

    Attributes:
        data: The serialized model.
        location: The external data's location that stands for the buffer itself. It is drawn at
            random, so no model can name it.
        lists: Long lists, by the documentation that their attributes have instead.
    """

    data: bytes
    location: str
    lists: dict[str, LongList]


def skim(
    buffer: memoryview, threshold: int = MIN_REFERENCED_BYTES, where: tuple[int, int] | None = None
) -> Skeleton:
    """Return the skeleton of a serialized ``ModelProto``.

    Takes time in proportion to the number of messages, not of bytes, and copies only what the
    skeleton has. Messages no longer than the threshold are not looked into.

    Args:
        buffer: What offsets of external data count from.
        threshold: Bytes from which on a message is looked into.
        where: Where in the buffer the model begins and ends; all of it if ``None``.

    Raises:
        InvalidProtobuf: At which byte the buffer stops being a model.
    """
    location = f"buffer:{os.urandom(12).hex()}"
    scan = _Scan(buffer, threshold, location)
    start, stop = where or (0, len(buffer))
    pieces = scan.message(start, stop, "Model", 0)
    data = bytes(buffer[start:stop]) if pieces is None else b"".join(pieces)
    return Skeleton(data, location, scan.lists)


class _Scan:
    def __init__(self, buffer: memoryview, threshold: int, location: str) -> None:
        self.buffer = buffer
        self.threshold = threshold
        self.location = location
        self.reference = _reference(location)
        self.lists: dict[str, LongList] = {}

    def message(self, start: int, stop: int, kind: Message, depth: int) -> Pieces | None:
        """Return what replaces a message; ``None`` if it stays as it is.

        The hot loop: one turn for every field of every long message.
        """
        if depth > MAX_NESTED_MESSAGES:
            raise _error(start, f"at most {MAX_NESTED_MESSAGES} nested messages", "one more")
        if kind == "Tensor":
            return self.tensor(start, stop)
        if kind == "Attribute" and self.holds_no_tensor(stop):
            return self.long_list(start, stop) if stop - start > MAX_PROTOBUF_LIST_BYTES else None
        buffer, threshold, nested = self.buffer, self.threshold, NESTED_BY_TAG[kind]
        # Up to ``copied`` everything is in the pieces. Fields between two changed messages are one
        # piece, so that few are joined.
        pieces: Pieces = []
        copied = position = start
        while position < stop:
            begin = position
            tag = buffer[position]
            position += 1
            if tag > 127:  # nearly all tags are one byte, and need no call
                tag, position = self.varint(begin, stop)
            if tag & 7 != BYTES:
                if tag & ~7 | BYTES in nested:
                    raise _error(begin, f"a message in field {tag >> 3}", f"wire type {tag & 7}")
                position = self.skip(tag, begin, position, stop)
                continue
            body, position = self.length(position, stop)
            if position - body > threshold and tag in nested:
                inner = self.message(body, position, nested[tag], depth + 1)
                if inner is not None:
                    size = sum(map(len, inner))
                    pieces += [buffer[copied:begin], _varint(tag) + _varint(size), *inner]
                    copied = position
        return [*pieces, buffer[copied:stop]] if pieces else None

    def holds_no_tensor(self, stop: int) -> bool:
        """Return whether an attribute ends with saying that it is numbers or words.

        A forest has hundreds of thousands. If the three bytes are something else's, a tensor stays
        in the skeleton.
        """
        return (
            self.threshold > 0
            and self.buffer[stop - 3 : stop - 1] == TYPE
            and self.buffer[stop - 1] in PLAIN_ATTRIBUTE_TYPES
        )

    def long_list(self, start: int, stop: int) -> Pieces | None:
        """Return what replaces an attribute that is a long list; ``None`` if it stays."""
        from tenonnx.formats.long_lists import read

        found = read(self.buffer[start:stop])
        if found is None:
            return None
        begin, items = found
        key = f"{self.location}:{start}"
        self.lists[key] = items
        documentation = bytes([DOC_STRING, len(key)]) + key.encode()
        return [self.buffer[start : start + begin], documentation, self.buffer[stop - 3 : stop]]

    def tensor(self, start: int, stop: int) -> Pieces | None:
        """Return what replaces a ``TensorProto``; ``None`` if its content is short."""
        buffer = self.buffer
        position, data_type, location = start, 0, 0
        contents: list[tuple[int, int, int, int]] = []
        while position < stop:
            begin = position
            tag, body = self.varint(begin, stop)
            if tag & 7 != BYTES:
                position = self.skip(tag, begin, body, stop)
                if tag == DATA_TYPE:
                    data_type = self.varint(body, stop)[0]
                elif tag == DATA_LOCATION:
                    location = self.varint(body, stop)[0]
                continue
            body, position = self.length(body, stop)
            if tag == RAW_DATA or tag in PACKED_ELEMENT_TYPES:
                contents.append((tag, begin, body, position))
        # Contents in two fields, or of another type, contradict the specification. They stay in the
        # skeleton, where onnx_ir reads or refuses them.
        if location == EXTERNAL or len(contents) != 1:
            return None
        tag, begin, body, end = contents[0]
        if end - body < self.threshold or PACKED_ELEMENT_TYPES.get(tag, data_type) != data_type:
            return None
        return [buffer[start:begin], buffer[end:stop], self.reference % (body, end - body)]

    def skip(self, tag: int, begin: int, position: int, stop: int) -> int:
        """Return the end of a field without a length."""
        wire = tag & 7
        if wire == VARINT and tag > 7:
            return self.varint(position, stop)[1]
        if wire not in (FIXED32, FIXED64) or tag < 8:
            raise _error(begin, "the tag of a field", f"field {tag >> 3} of wire type {wire}")
        end = position + (4 if wire == FIXED32 else 8)
        if end > stop:
            raise _error(position, f"{end - position} bytes", f"{stop - position}")
        return end

    def length(self, position: int, stop: int) -> tuple[int, int]:
        """Return where that begins and ends whose length stands at a position."""
        length, body = self.varint(position, stop)
        if length > stop - body:
            error = _error(position, f"a length up to {stop - body}", str(length))
            if stop == len(self.buffer):
                error.hint = "Was the download or copy of the file completed?"
            raise error
        return body, body + length

    def varint(self, position: int, stop: int) -> tuple[int, int]:
        """Return the number that stands at a position, and where it ends."""
        buffer = self.buffer
        if position < stop and (value := buffer[position]) < 128:
            return value, position + 1
        value = shift = 0
        for end in range(position, min(position + 10, stop)):
            byte = buffer[end]
            value |= (byte & 127) << shift
            if byte < 128:
                return value, end + 1
            shift += 7
        found = "more" if position + 10 <= stop else "the end"
        raise _error(position, "a number of at most 10 bytes", found)


def _reference(location: str) -> bytes:
    """Return the fields that make a tensor external, but for its offset and length."""
    name = location.encode()
    entries = [b"\n\x08location\x12%c%s" % (len(name), name)]
    # Fixed widths, so that the lengths are known before the numbers are.
    entries += [b"\n\x06%s\x12\x14%%020d" % key for key in (b"offset", b"length")]
    sizes = [len(entries[0]), *(len(entry) - len("%020d") + 20 for entry in entries[1:])]
    external = b"".join(b"\x6a%c%s" % pair for pair in zip(sizes, entries, strict=True))
    return external + bytes([DATA_LOCATION, EXTERNAL])


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _error(offset: int, expected: str, found: str) -> InvalidProtobuf:
    return InvalidProtobuf(f"at byte {offset}: expected {expected}, found {found}")
