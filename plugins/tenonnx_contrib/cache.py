"""Caches of keys and values: where new ones go, and how they are quantized."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenonnx import Array, Namespace
from tenonnx_array.dtypes import FLOATS
from tenonnx_array.packed import unpack
from tenonnx_array.quant import round_to


class Store:
    """The form of a cache's numbers: as they are, or divided by a scale and rounded.

    Args:
        kind: NONE, PER_TENSOR or PER_CHANNEL.
        scale: Broadcasts to (batch, heads, length, size); None if the cache is not quantized.
        bits: 4 keeps two numbers in a byte, each 8 too large; 8 keeps them in the cache's type.
        cache: The cache so far; without one, 8 bits are int8.

    Raises:
        ValueError: An unknown kind, or a scale is missing.
    """

    def __init__(self, kind: str, scale: Array | None, bits: int, cache: Array | None) -> None:
        if kind not in ("NONE", "PER_TENSOR", "PER_CHANNEL"):
            raise ValueError(
                f"expected a cache quantized as NONE, PER_TENSOR or PER_CHANNEL, found {kind!r}"
            )
        if (kind != "NONE") != (scale is not None):
            raise ValueError(f"expected a scale exactly for a quantized cache, found kind {kind!r}")
        self.kind, self.scale, self.bits = kind, scale, bits
        self.dtype = np.dtype(np.int8) if cache is None else cache.dtype
        if scale is not None and scale.ndim == 3:
            self.scale = scale[None]

    def encode_heads(self, xp: Namespace, values: Array) -> Array:
        """Return keys or values (batch, heads, length, size) as the cache keeps them.

        Raises:
            ValueError: There is not one scale for each channel.
        """
        wanted = values.shape[1] * values.shape[3] if self.kind == "PER_CHANNEL" else 1
        if self.scale is not None and self.scale.size != wanted:
            raise ValueError(f"expected {wanted} scales of a cache, found {self.scale.shape}")
        return self.encode(xp, values)

    def encode(self, xp: Namespace, values: Array) -> Array:
        """Return keys or values as the cache keeps them."""
        if self.scale is None:
            return values
        quotient = values.astype(xp.float32) / self.scale
        if self.dtype in FLOATS or self.bits != 4:
            return round_to(xp, quotient, None, self.dtype)
        nibbles = (xp.clip(xp.rint(quotient), -8, 7) + 8).astype(xp.uint8)
        if nibbles.shape[-1] % 2:
            nibbles = xp.concatenate((nibbles, xp.zeros_like(nibbles[..., :1])), axis=-1)
        return nibbles[..., ::2] | (nibbles[..., 1::2] << xp.uint8(4))

    def decode(self, xp: Namespace, stored: Array, size: int) -> Array:
        """Return what ``encode`` was given, ``size`` numbers on the last axis."""
        if self.scale is None:
            return stored
        if self.dtype not in FLOATS and self.bits == 4:
            values = unpack(xp, stored, 4)[..., :size].astype(xp.float32) - xp.float32(8)
        else:
            values = stored.astype(xp.float32)
        return values * self.scale


def appended(
    xp: Namespace,
    past: Array | None,
    new: Array,
    starts: list[int],
    capacity: int,
    counts: list[int] | None = None,
) -> Array:
    """Return the cache with new entries from ``starts`` on, one start per batch entry.

    Both are (batch, heads, length, size). A cache that has room is copied, never written to.
    Only the first ``counts`` entries are new ones, if they are given.
    """
    length = new.shape[2]
    held = 0 if past is None else past.shape[2]
    counts = counts or [length] * new.shape[0]
    whole = set(counts) == {length}
    if whole and held == 0 and capacity == length and not any(starts):
        return new
    if whole and past is not None and capacity == held + length and set(starts) == {held}:
        return xp.concatenate((past, new), axis=2)
    cache = xp.zeros((*new.shape[:2], capacity, new.shape[3]), new.dtype)
    if past is not None:
        cache[:, :, :held] = past
    for entry, (start, count) in enumerate(zip(starts, counts, strict=True)):
        cache[entry, :, start : start + count] = new[entry, :, :count]
    return cache


def extended(
    xp: Namespace,
    pasts: Sequence[Array | None],
    new: Sequence[Array],
    starts: list[int],
    total: int,
    counts: list[int] | None = None,
) -> list[Array]:
    """Return the caches of keys and values with new entries, of room for ``total`` at least."""
    room = 0 if pasts[0] is None else pasts[0].shape[2]
    return [
        appended(xp, past, heads, starts, max(total, room), counts)
        for past, heads in zip(pasts, new, strict=True)
    ]
