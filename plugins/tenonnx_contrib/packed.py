"""Integers of 2, 4 and 8 bits as they are stored: several to a byte, the first in the low bits."""

from __future__ import annotations

from tenonnx import Array, Namespace


def unpack(xp: Namespace, packed: Array, bits: int) -> Array:
    """Returns the elements of the last axis as uint8, each in a byte of its own.

    Raises:
        ValueError: ``bits`` is not 2, 4 or 8.
    """
    check(bits)
    if bits == 8:
        return packed
    return flattened(xp.take(codes(xp, bits), packed, axis=0))


def levels(xp: Namespace, packed: Array, bits: int) -> Array:
    """Returns the elements of the last axis less the middle of their range, as float32."""
    middle = xp.float32(1 << (bits - 1))
    if bits == 8:
        return packed.astype(xp.float32) - middle
    return flattened(xp.take(codes(xp, bits).astype(xp.float32) - middle, packed, axis=0))


def codes(xp: Namespace, bits: int) -> Array:
    """Returns the elements that each of the 256 bytes holds."""
    shifts = xp.arange(0, 8, bits, dtype=xp.uint8)
    return (xp.arange(256, dtype=xp.uint8)[:, None] >> shifts) & xp.uint8((1 << bits) - 1)


def flattened(parts: Array) -> Array:
    """Returns (..., bytes, elements in a byte) as (..., elements)."""
    return parts.reshape(*parts.shape[:-2], parts.shape[-2] * parts.shape[-1])


def check(bits: int) -> None:
    """Refuse widths that are not stored this way.

    Raises:
        ValueError: ``bits`` is not 2, 4 or 8.
    """
    if bits not in (2, 4, 8):
        raise ValueError(f"expected weights of 2, 4 or 8 bits, found bits={bits}")
