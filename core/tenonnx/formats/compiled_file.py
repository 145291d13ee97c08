"""The form of compiled files: a model, its weights and a plan of it, for machines alike.

::

    header | weights | model, as ONNX has it | weights of the plan alone | the plan

Weights of the model are external data at a location that stands for the file itself, so it is read
as any model is. The plan is as ``tenonnx.plan_cache.files`` has it, and for those who trust the
file; see ``tenonnx.plan_cache.shipped``.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tenonnx.errors import InvalidProtobuf
from tenonnx.formats.wire import COMPILED as MAGIC

COMPILED_VERSION = 2
PAGE = 4096
# Alignment of weights and arrays in the file.
ALIGNMENT_BYTES = 64

# The location of external data that stands for the file itself.
LOCATION = "tenonnx.weights"

# Magic, version, and the numbers of ``Header``.
COMPILED_HEADER = struct.Struct("<16s5Q")


class Header(NamedTuple):
    """The places of the parts of a compiled file.

    Attributes:
        size: The file's bytes.
        model: Where the model begins and ends.
        plan: Where the plan begins, which ends with the file; there if it has none yet.
    """

    size: int
    model: tuple[int, int]
    plan: int

    def packed(self) -> bytes:
        """Return the page that a file begins with."""
        places = self.size, *self.model, self.plan
        return COMPILED_HEADER.pack(MAGIC, COMPILED_VERSION, *places).ljust(PAGE, b"\0")


def is_compiled(content: bytes | memoryview) -> bool:
    """Return whether a file that begins so is a compiled one."""
    return bytes(content[: len(MAGIC)]) == MAGIC


def header_of(content: memoryview, name: str) -> Header:
    """Return the header of a compiled file.

    Args:
        content: The whole file.
        name: Its name in messages.

    Raises:
        InvalidProtobuf: It is of another version, or not whole.
    """
    hint = "Write it again: `tenonnx compile` of the version that opens it."
    if len(content) < COMPILED_HEADER.size:
        raise InvalidProtobuf(f"{name} is a compiled file that ends in its header", hint=hint)
    _, version, size, start, stop, plan = COMPILED_HEADER.unpack_from(content)
    if version != COMPILED_VERSION:
        raise InvalidProtobuf(
            f"{name} is a compiled file of version {version}; expected {COMPILED_VERSION}",
            hint=hint,
        )
    if size != len(content):
        raise InvalidProtobuf(
            f"{name} has {len(content):,} bytes; expected {size:,}",
            hint="Was the download or copy of the file completed?",
        )
    if not PAGE <= start <= stop <= plan <= size:
        raise InvalidProtobuf(f"{name} is a compiled file whose parts overlap", hint=hint)
    return Header(size, (start, stop), plan)
