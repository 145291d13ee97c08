"""Building a flatbuffer from nested dictionaries, driven by the schema that reads it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import flatbuffers  # type: ignore[import-untyped] # has no stubs
import numpy as np
import onnx_ir as ir
from flatbuffers import number_types

from tenonnx import InvalidArgument
from tenonnx_ort_format.flat import SCALARS, STRUCTS, VECTOR_DTYPES, Field, Schema

# A cache line, and the widest vector of any processor.
TENSOR_ALIGNMENT_BYTES = 64

# onnxruntime's limit: its verifier counts with signed 32-bit numbers.
MAX_FILE_BYTES = 2**31 - 1


@dataclass(frozen=True)
class Later:
    """A vector of bytes that is written behind everything else."""

    tensor: ir.TensorProtocol


class Tables:
    """A flatbuffer in the making.

    Offsets in a flatbuffer point forward only. So tables come first and large vectors last: these
    need not be in memory, and may lie at any alignment.

    Args:
        schema: Fields of all tables.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._builder = flatbuffers.Builder(1 << 16)
        self._empty = self._builder.CreateByteVector(b"")
        self._later: list[tuple[int, int, ir.TensorProtocol]] = []

    def table(self, kind: str, values: Mapping[str, Any]) -> int:
        """Add a table with the fields given, and all that they refer to; return its place.

        A table that the schema leaves open is a pair of its kind and its fields.
        """
        fields = self._schema[kind]
        ready = {
            name: self._child(field, values[name])
            for name, field in fields
            if values.get(name) is not None
        }
        self._builder.StartObject(len(fields))
        later = []
        for slot, (name, field) in enumerate(fields):
            if name not in ready:
                continue
            if isinstance(field, str) and field in SCALARS:
                self._builder.PrependSlot(SCALARS[field][0], slot, ready[name], SCALARS[field][1])
            else:
                self._builder.PrependUOffsetTRelativeSlot(slot, ready[name], 0)
            if isinstance(values[name], Later):
                later.append((slot, values[name].tensor))
        place: int = self._builder.EndObject()
        self._later += [(place, slot, tensor) for slot, tensor in later]
        return place

    def _child(self, field: Field, value: Any) -> Any:
        if isinstance(value, Later):
            return self._empty
        if isinstance(field, tuple):
            return self._vector(field[0], value)
        if field in SCALARS:
            return value
        if field == "string":
            return self._builder.CreateSharedString(value)
        kind, values = value if isinstance(value, tuple) else (field, value)
        return self.table(kind, values)

    def _vector(self, kind: str, values: Sequence[Any]) -> int:
        builder = self._builder
        if kind in VECTOR_DTYPES:
            return int(builder.CreateNumpyVector(np.asarray(values, VECTOR_DTYPES[kind])))
        if kind in STRUCTS:
            flags = [SCALARS[field][0] for field in STRUCTS[kind]]
            builder.StartVector(4 * len(flags), len(values), 4)
            for row in reversed(values):
                for flag, number in zip(reversed(flags), reversed(row), strict=True):
                    builder.Prepend(flag, number)
            return int(builder.EndVector())
        places = [self._child(kind, value) for value in values]
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return int(builder.EndVector())

    def write(self, root: int, identifier: bytes, file: BinaryIO) -> None:
        """Write the flatbuffer, and what comes later tensor by tensor.

        Raises:
            InvalidArgument: It is larger than the format allows.
        """
        self._builder.Finish(root, file_identifier=identifier)
        head = bytearray(self._builder.Output())
        end = len(head)
        starts = []
        for place, slot, tensor in self._later:
            if not tensor.nbytes:
                continue
            start = -(-(end + 4) // TENSOR_ALIGNMENT_BYTES) * TENSOR_ALIGNMENT_BYTES
            end = start + tensor.nbytes
            if end > MAX_FILE_BYTES:
                raise InvalidArgument(
                    f"the model exceeds the {MAX_FILE_BYTES:,} bytes of an .ort file",
                    hint="write an .onnx file: its weights go to a file of their own",
                )
            starts.append((start, tensor))
            _point(head, len(head) - place, slot, start - 4)
        file.write(head)
        for start, tensor in starts:
            file.write(bytes(start - 4 - file.tell()))
            file.write(struct.pack("<I", tensor.nbytes))
            _write(tensor, file)


def _point(head: bytearray, table: int, slot: int, target: int) -> None:
    """Have a field of a table refer to a vector behind all tables."""
    field = table + flatbuffers.Table(head, table).Offset(4 + 2 * slot)
    struct.pack_into(number_types.UOffsetTFlags.packer_type.format, head, field, target - field)


def _write(tensor: ir.TensorProtocol, file: BinaryIO) -> None:
    to_file = getattr(tensor, "tofile", None)
    if to_file is None:
        file.write(tensor.tobytes())
    else:
        to_file(file)
