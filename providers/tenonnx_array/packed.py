"""Unpacking integers of 2, 4 and 8 bits: several to a byte, the first one in the low bits.

MatMulNBits, GatherBlockQuantized, MoE and quantized caches store their elements so. CPU kernels
read the same order in ``tenonnx_cpu.jit.vectors.packed_ints``. ONNX's INT4 and UINT4 tensors do
not come here: arrays hold those with an element per byte.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenonnx.operators import Array, Namespace


def unpack(xp: Namespace, packed: Array, bits: int) -> Array:
    """Return the elements of the last axis as uint8, each in a byte of its own.

    Raises:
        ValueError: ``bits`` is not 2, 4 or 8.
    """
    check(bits)
    if bits == 8:
        return packed
    out = xp.empty((*packed.shape, 8 // bits), xp.uint8)
    for place, plane in enumerate(planes(xp, packed, bits)):
        out[..., place] = plane
    return flattened(out)


def levels(xp: Namespace, packed: Array, bits: int) -> Array:
    """Return the elements of the last axis less the middle of their range, as float32."""
    out = xp.empty((*packed.shape, 8 // bits), xp.float32)
    for place, plane in enumerate(centred_planes(xp, packed, bits)):
        out[..., place] = plane
    return flattened(out)


def planes(xp: Namespace, packed: Array, bits: int) -> Iterator[Array]:
    """Yield the elements at each place of a byte, from the low bits on, as uint8."""
    if bits == 8:
        yield packed
        return
    mask = xp.uint8((1 << bits) - 1)
    yield packed & mask
    for shift in range(bits, 8 - bits, bits):
        yield (packed >> xp.uint8(shift)) & mask
    yield packed >> xp.uint8(8 - bits)


def centred_planes(xp: Namespace, packed: Array, bits: int) -> Iterator[Array]:
    """Yield the same less the middle of their range, as int8."""
    middle = xp.uint8(1 << (bits - 1))
    for plane in planes(xp, packed, bits):
        yield (plane - middle).view(xp.int8)


def flattened(parts: Array) -> Array:
    """Return (..., bytes, elements in a byte) as (..., elements)."""
    return parts.reshape(*parts.shape[:-2], parts.shape[-2] * parts.shape[-1])


def check(bits: int) -> None:
    """Refuse widths that are not stored this way.

    Raises:
        ValueError: ``bits`` is not 2, 4 or 8.
    """
    if bits not in (2, 4, 8):
        raise ValueError(f"expected weights of 2, 4 or 8 bits, found bits={bits}")
