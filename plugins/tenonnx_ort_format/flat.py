"""Typed, bounds-checked access to the tables of a flatbuffer, driven by a schema of fields.

The flatbuffers wire format: https://flatbuffers.dev/internals/. A table starts with an offset
back to its vtable, which says where each field lies, or 0 where it is absent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import flatbuffers  # type: ignore[import-untyped] # has no stubs
import numpy as np
from flatbuffers import number_types

from tenonnx import InvalidProtobuf

# `"int64"`, a table's name, or either in a one-tuple for a vector of them.
Field: TypeAlias = "str | tuple[str]"

# Fields of every table in declaration order, which fixes their vtable slots.
Schema: TypeAlias = Mapping[str, Sequence[tuple[str, Field]]]

SCALARS: dict[str, tuple[Any, Any]] = {
    "bool": (number_types.BoolFlags, False),
    "int8": (number_types.Int8Flags, 0),
    "int32": (number_types.Int32Flags, 0),
    "uint32": (number_types.Uint32Flags, 0),
    "int64": (number_types.Int64Flags, 0),
    "float32": (number_types.Float32Flags, 0.0),
}

VECTOR_DTYPES = {"int32": np.int32, "int64": np.int64, "float32": np.float32, "uint8": np.uint8}

# Vectors of these hold their fields, and no offsets to them: node, output, input.
STRUCTS = {"EdgeEnd": ("uint32", "int32", "int32")}

# A cycle of offsets would never end without a limit.
MAX_NESTED_TABLES = 64


# Bytes that may be read of a file for each that it has: tables and strings may be shared, and a
# few kilobytes of tables that refer to shared tables are more than anybody can read.
READS_PER_BYTE = 16

# The cost of reading a table of any size: it takes as long as reading so many bytes.
ROW_BYTES = 64


class Allowance:
    """The bytes of a file that may still be read.

    Args:
        size: Bytes of the file.
    """

    def __init__(self, size: int) -> None:
        self._left = READS_PER_BYTE * size

    def spend(self, nbytes: int) -> None:
        """Count what is about to be read.

        Raises:
            InvalidProtobuf: It is too much for a file of this size.
        """
        self._left -= nbytes
        if self._left < 0:
            raise InvalidProtobuf(
                "the flatbuffer refers to the same tables again and again: more than "
                f"{READS_PER_BYTE} times its size would have to be read"
            )


class Row:
    """One table. Attributes are its fields; an absent one is 0, ``""``, ``()`` or ``None``.

    Args:
        schema: Fields of all tables.
        name: Which of them this is.
        buffer: The whole flatbuffer.
        position: Where the table starts.
        parent: The table that refers to this one; ``None`` for the outermost.
    """

    def __init__(
        self,
        schema: Schema,
        name: str,
        buffer: memoryview,
        position: int,
        parent: Row | None = None,
    ) -> None:
        depth: int = parent._depth + 1 if parent else 0
        if depth > MAX_NESTED_TABLES:
            raise InvalidProtobuf(f"the flatbuffer nests deeper than {MAX_NESTED_TABLES} tables")
        self._allowance: Allowance = parent._allowance if parent else Allowance(len(buffer))
        self._allowance.spend(ROW_BYTES)
        self._schema, self._buffer = schema, buffer
        self._depth: int = depth
        self._slots = {field: (slot, kind) for slot, (field, kind) in enumerate(schema[name])}
        self._table = flatbuffers.Table(buffer, position)
        self._name = name

    def __getattr__(self, field: str) -> Any:
        if field.startswith("_") or field not in self._slots:
            raise AttributeError(field)
        slot, kind = self._slots[field]
        offset = self._guard(field, lambda: self._table.Offset(4 + 2 * slot))
        where = self._table.Pos + offset if offset else 0
        return self._guard(field, lambda: self._read(kind, where))

    def _guard(self, field: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except InvalidProtobuf:
            raise
        except (IndexError, ValueError, TypeError, OverflowError, struct.error) as error:
            raise InvalidProtobuf(
                f"the file is damaged or truncated: {self._name}.{field} cannot be read ({error})"
            ) from error

    def _read(self, kind: Field, where: int) -> Any:
        if isinstance(kind, tuple):
            return self._vector(kind[0], where) if where else ()
        if kind in SCALARS:
            flags, default = SCALARS[kind]
            return self._table.Get(flags, where) if where else default
        if kind == "string":
            return self._string(where) if where else ""
        return self._row(kind, self._table.Indirect(where)) if where else None

    def _string(self, where: int) -> str:
        text = bytes(self._table.String(where))
        self._allowance.spend(len(text))
        return text.decode("utf-8")

    def _row(self, kind: str, position: int) -> Row:
        return Row(self._schema, kind, self._buffer, position, self)

    def _vector(self, kind: str, where: int) -> Any:
        start, length = self._span(where)
        self._allowance.spend(4 * length)
        if kind in VECTOR_DTYPES:
            dtype = np.dtype(VECTOR_DTYPES[kind])
            return np.frombuffer(self._buffer, dtype, length, start)
        places = range(start, start + 4 * length, 4)
        if kind in STRUCTS:
            fields = np.dtype([(f"{i}", field) for i, field in enumerate(STRUCTS[kind])])
            return np.frombuffer(self._buffer, fields, length, start)
        if start + 4 * length > len(self._buffer):
            raise ValueError(f"{length} entries at byte {start} reach beyond the end")
        if kind == "string":
            return [self._string(place) for place in places]
        return [self._row(kind, self._table.Indirect(place)) for place in places]

    def _span(self, where: int) -> tuple[int, int]:
        """Return where the vector that is referred to at a position starts, and its length."""
        start = self._table.Indirect(where)
        return start + 4, int(self._table.Get(number_types.Uint32Flags, start))

    def span(self, field: str) -> tuple[int, int] | None:
        """Return byte offset and element count of a vector field, without reading it."""
        slot, _ = self._slots[field]
        offset = self._guard(field, lambda: self._table.Offset(4 + 2 * slot))
        if not offset:
            return None
        return self._guard(field, lambda: self._span(self._table.Pos + offset))  # type: ignore[no-any-return]

    def union(self, field: str, kinds: Sequence[str]) -> Row | None:
        """Return a union's table; the field before it says which of ``kinds`` it is, from 1."""
        slot, _ = self._slots[field]
        tag = getattr(self, f"{field}_type")
        offset = self._guard(field, lambda: self._table.Offset(4 + 2 * slot))
        if not offset or not 1 <= tag <= len(kinds):
            return None
        place = self._table.Pos + offset
        return self._guard(  # type: ignore[no-any-return]
            field, lambda: self._row(kinds[tag - 1], self._table.Indirect(place))
        )
