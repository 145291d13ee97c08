"""ggml's block formats: rows of blocks, each a few scales and the elements' low bits.

A format's function takes blocks of bytes, (..., bytes of a block), and returns what they hold as
float32, (..., elements of a block), with every product rounded as onnxruntime rounds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tenonnx_contrib.codebooks import codebook

Array = np.ndarray[Any, Any]

# The values of four bits in the IQ4 formats.
FOUR_BITS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)


class Format(NamedTuple):
    """The layout of a block in memory."""

    name: str
    elements: int
    size: int
    """Bytes."""
    decode: Callable[[Array], Array]


def decoded(rows: Array, form: Format) -> Array:
    """Return rows of bytes, (rows, bytes), as rows of float32."""
    blocks = rows.reshape(len(rows), rows.shape[-1] // form.size, form.size)
    return form.decode(blocks).reshape(len(rows), blocks.shape[1] * form.elements)


def numbers(blocks: Array, start: int, stop: int, dtype: Any) -> Array:
    """Return bytes of each block as little-endian numbers."""
    some: Array = np.ascontiguousarray(blocks[..., start:stop]).view(
        np.dtype(dtype).newbyteorder("<")
    )
    return some


def half(blocks: Array, start: int = 0) -> Array:
    """Return the float16 at a byte of each block as float32, (..., 1)."""
    return numbers(blocks, start, start + 2, np.float16).astype(np.float32)


def halves(packed: Array) -> Array:
    """Return the low four bits of all bytes, then the high ones, along the last axis."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def bits(packed: Array, width: int = 1) -> Array:
    """Return the elements of the last axis' bytes, the first in the lowest bits."""
    parts = packed[..., None] >> np.arange(0, 8, width, dtype=np.uint8) & ((1 << width) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


def signs(codes: Array) -> Array:
    """Return -1 where one of eight bits is set, else 1, along a new last axis, as float32."""
    return 1 - 2 * bits(codes[..., None].astype(np.uint8)).astype(np.float32)


def even(codes: Array) -> Array:
    """Return seven bits with an eighth that makes an even number of them set."""
    odd = np.bitwise_count(codes).astype(codes.dtype) & 1
    whole: Array = codes | odd << 7
    return whole


def scaled(factors: Array, values: Array) -> Array:
    """Return groups of elements, (..., groups, elements), times a factor each: (..., all)."""
    return (factors[..., None] * values).reshape(*values.shape[:-2], -1)


def q2_0(blocks: Array) -> Array:
    return half(blocks) * (bits(blocks[..., 2:], 2).astype(np.float32) - 1)


def q4_0(blocks: Array) -> Array:
    return half(blocks) * (halves(blocks[..., 2:]).astype(np.float32) - 8)


def q5_0(blocks: Array) -> Array:
    codes: Array = halves(blocks[..., 6:]) | bits(blocks[..., 2:6]) << 4
    return half(blocks) * (codes.astype(np.float32) - 16)


def q8_0(blocks: Array) -> Array:
    return half(blocks) * blocks[..., 2:].view(np.int8).astype(np.float32)


def six_bits(packed: Array) -> tuple[Array, Array]:
    """Return the eight scales and eight offsets that twelve bytes hold, as float32.

    Those from the fifth on have their lower four bits in the last bytes, and the others on top
    of the first ones.
    """
    low, high, last = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = [low & 63, last & 15 | (low >> 6) << 4]
    offsets = [high & 63, last >> 4 | (high >> 6) << 4]
    first, second = (np.concatenate(each, axis=-1) for each in (scales, offsets))
    return first.astype(np.float32), second.astype(np.float32)


def q5_k(blocks: Array) -> Array:
    scales, offsets = six_bits(blocks[..., 4:16])
    low = blocks[..., 48:].reshape(*blocks.shape[:-1], 4, 32)
    low = halves(low).reshape(*blocks.shape[:-1], 8, 32)
    fifth = blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    codes = (low | fifth << 4).astype(np.float32)
    y: Array = (half(blocks) * scales)[..., None] * codes - (half(blocks, 2) * offsets)[..., None]
    return y.reshape(*blocks.shape[:-1], 256)


def q6_k(blocks: Array) -> Array:
    whole = blocks.shape[:-1]
    low = halves(blocks[..., :128].reshape(*whole, 2, 64))  # of each half: 128 elements
    top = blocks[..., 128:192].reshape(*whole, 2, 1, 32)
    top = (top >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3).reshape(*whole, 2, 128)
    codes = (low | top << 4).reshape(*whole, 16, 16).astype(np.float32) - 32
    scales = blocks[..., 192:208].view(np.int8).astype(np.float32)
    return scaled(half(blocks, 208) * scales, codes)


def iq4_nl(blocks: Array) -> Array:
    return half(blocks) * FOUR_BITS[halves(blocks[..., 2:])]


def iq4_xs(blocks: Array) -> Array:
    whole = blocks.shape[:-1]
    codes = halves(blocks[..., 8:].reshape(*whole, 8, 16))
    scales = (bits(blocks[..., 4:8], 4) | bits(blocks[..., 2:4], 2) << 4).astype(np.float32) - 32
    return scaled(half(blocks) * scales, FOUR_BITS[codes])


def iq2_xxs(blocks: Array) -> Array:
    whole = blocks.shape[:-1]
    words = numbers(blocks, 2, 66, np.uint32).reshape(*whole, 8, 2)
    indices = np.ascontiguousarray(words[..., :1]).view(np.uint8)
    rest = words[..., 1:]
    negative = signs(even(rest >> np.arange(0, 28, 7, dtype=np.uint32) & 127))
    factors = half(blocks) * (np.float32(0.5) + (rest[..., 0] >> 28)) * np.float32(0.25)
    values = codebook("IQ2_XXS")[indices] * negative
    return scaled(factors.astype(np.float32), values.reshape(*whole, 8, 32))


def iq2_xs(blocks: Array) -> Array:
    words = numbers(blocks, 2, 66, np.uint16)
    values = codebook("IQ2_XS")[words & 511] * signs(even(words >> 9))
    return pairs(blocks, values)


def iq2_s(blocks: Array) -> Array:
    top = bits(blocks[..., 66:74], 2).astype(np.uint16)
    values = codebook("IQ2_S")[blocks[..., 2:34] | top << 8] * signs(blocks[..., 34:66])
    return pairs(blocks, values)


def pairs(blocks: Array, values: Array) -> Array:
    """Return values whose sixteen scales are the last eight bytes of the block."""
    scales = bits(blocks[..., -8:], 4)
    factors = half(blocks) * (np.float32(0.5) + scales.astype(np.float32)) * np.float32(0.25)
    return scaled(factors, values.reshape(*blocks.shape[:-1], 16, 16))


def iq3_xxs(blocks: Array) -> Array:
    whole = blocks.shape[:-1]
    rest = numbers(blocks, 66, 98, np.uint32)[..., None]
    negative = signs(even(rest >> np.arange(0, 28, 7, dtype=np.uint32) & 127))
    factors = half(blocks) * (np.float32(0.5) + (rest[..., 0] >> 28)) * np.float32(0.5)
    values = codebook("IQ3_XXS")[blocks[..., 2:66]].reshape(*whole, 8, 32)
    return scaled(factors.astype(np.float32), values * negative.reshape(*whole, 8, 32))


def plain(dtype: Any) -> Callable[[Array], Array]:
    """Return the function of a format whose blocks are numbers."""
    return lambda blocks: np.ascontiguousarray(blocks).view(dtype).astype(np.float32)


# By ggml's numbers of types; onnxruntime refuses the others.
FORMATS = {
    0: Format("F32", 1, 4, plain(np.float32)),
    1: Format("F16", 1, 2, plain(np.float16)),
    2: Format("Q4_0", 32, 18, q4_0),
    6: Format("Q5_0", 32, 22, q5_0),
    8: Format("Q8_0", 32, 34, q8_0),
    13: Format("Q5_K", 256, 176, q5_k),
    14: Format("Q6_K", 256, 210, q6_k),
    16: Format("IQ2_XXS", 256, 66, iq2_xxs),
    17: Format("IQ2_XS", 256, 74, iq2_xs),
    18: Format("IQ3_XXS", 256, 98, iq3_xxs),
    20: Format("IQ4_NL", 32, 18, iq4_nl),
    22: Format("IQ2_S", 256, 82, iq2_s),
    23: Format("IQ4_XS", 256, 136, iq4_xs),
    30: Format("BF16", 1, 2, plain(ml_dtypes.bfloat16)),
    42: Format("Q2_0", 64, 18, q2_0),
}
