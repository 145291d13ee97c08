"""Digests, which name the files that are kept for other processes."""

from __future__ import annotations

from hashlib import blake2b

DIGEST_BYTES = 32


def digest(*content: bytes | bytearray | memoryview | str) -> str:
    """Return 64 hexadecimal digits that no other content has; pieces of it are as one."""
    whole = blake2b(digest_size=DIGEST_BYTES)
    for piece in content:
        whole.update(piece.encode() if isinstance(piece, str) else piece)
    return whole.hexdigest()
