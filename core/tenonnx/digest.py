"""Digests, which name the files that are kept for other processes."""

from __future__ import annotations

# hashlib loads OpenSSL first, which takes longer than a small session.
try:
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

BYTES = 32


def digest(*content: bytes | bytearray | memoryview | str) -> str:
    """Returns 64 hexadecimal digits that no other content has; pieces of it are as one."""
    whole = blake2b(digest_size=BYTES)
    for piece in content:
        whole.update(piece.encode() if isinstance(piece, str) else piece)
    return whole.hexdigest()
