"""Files of numba's libraries, which are kept where no code objects are made."""

from __future__ import annotations

import struct
import zlib

from tenonnx.weights.trusted import read_trusted

Library = tuple[str, str, tuple[bytes, bytes]]
"""A library that numba compiled: name, form, and object code beside LLVM's bitcode."""

FORM = "object"
FRONT = struct.Struct("<8sIIQQ")
"""The mark, a checksum of what follows it, bytes of the name, of object code and of bitcode."""
MARK = b"tenonlib"
CHECKED = 12
"""The offset from which the checksum is computed."""


def pack(library: Library) -> bytes:
    """Return a library as it lies in a file."""
    name, form, (code, bitcode) = library
    if form != FORM:
        raise ValueError(f"numba's libraries are expected as {FORM!r}, not {form!r}")
    text = name.encode()
    front = FRONT.pack(MARK, 0, len(text), len(code), len(bitcode))
    whole = bytearray(front + text + code + bitcode)
    struct.pack_into("<I", whole, len(MARK), zlib.crc32(whole[CHECKED:]))
    return bytes(whole)


def read(path: str) -> Library | None:
    """Return the library that a file holds; ``None`` if it holds none, or is not trusted."""
    try:
        whole = read_trusted(path)
        mark, checksum, *sizes = FRONT.unpack_from(whole)
        named, coded, _ = sizes
        if mark != MARK or FRONT.size + sum(sizes) != len(whole):
            return None
        if zlib.crc32(whole[CHECKED:]) != checksum:
            return None
        start = FRONT.size + named
        name = whole[FRONT.size : start].decode()
    except (OSError, struct.error, UnicodeDecodeError):
        return None
    return name, FORM, (whole[start : start + coded], whole[start + coded :])
