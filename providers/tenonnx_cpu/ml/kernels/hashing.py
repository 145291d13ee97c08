"""MurmurHash3 of keys that lie one behind the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8, u32
from tenonnx_cpu.jit.vectors.memory import load_byte, load_word
from tenonnx_cpu.ml.kernels.string_arrays import LAYOUT, word_at

# numba makes 64 bits of two of 32: every product and shift is cut.


@inlined
def rotated(x: Any, bits: Any) -> Any:
    """Rotate 32 bits to the left."""
    return np.uint32(x << np.uint32(bits)) | np.uint32(x >> np.uint32(32 - bits))


@inlined
def mixed(block: Any) -> Any:
    """Return what a block of four bytes changes a state by."""
    turned = rotated(np.uint32(block * np.uint32(0xCC9E2D51)), 15)
    return np.uint32(turned * np.uint32(0x1B873593))


@inlined
def spread(state: Any, shift: Any, factor: Any) -> Any:
    """Have the upper bits of a state change the lower ones."""
    return np.uint32((state ^ np.uint32(state >> np.uint32(shift))) * np.uint32(factor))


@inlined
def rest_of(data: Any, count: Any) -> Any:
    """Return less than four bytes as a number, the lowest first."""
    block = np.uint32(0)
    for place in range(count):
        block = np.uint32(block | np.uint32(load_byte(data + place)) << np.uint32(8 * place))
    return block


@inlined
def joined(state: Any, block: Any) -> Any:
    """Have a block of four bytes change a state."""
    turned = rotated(np.uint32(state ^ mixed(block)), 13)
    return np.uint32(turned * np.uint32(5) + np.uint32(0xE6546B64))


@inlined
def finished(state: Any, length: Any) -> Any:
    """Return the hash of so many bytes that a state has seen."""
    state = np.uint32(state ^ np.uint32(length))
    state = spread(spread(state, 16, 0x85EBCA6B), 13, 0xC2B2AE35)
    return np.uint32(state ^ np.uint32(state >> np.uint32(16)))


@helper
def hash_one(data: Any, length: Any, seed: Any) -> Any:
    """Return MurmurHash3_x86_32 (Appleby 2011) of the bytes at an address."""
    state = seed
    last = data + length // 4 * 4
    while data < last:
        state = joined(state, np.uint32(load_word(data)))
        data += 4
    return finished(np.uint32(state ^ mixed(rest_of(last, length % 4))), length)


@kernel(
    (In(u32, 1), size, Out(u32, 1), size),
    Contract(launch="there are a word or two for each hash"),
)
def murmur3_numbers(words, seed, y, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write a hash for each number.

    Args:
        words: The numbers' bytes, by fours.
        seed: 32 bits.
        y: The hashes.
        threads: Not more than one is used.
    """
    start = np.uint32(seed)
    if words.size == y.size:
        for i in range(y.size):
            y[i] = finished(joined(start, words[i]), 4)
    else:
        for i in range(y.size):
            y[i] = finished(joined(joined(start, words[2 * i]), words[2 * i + 1]), 8)


@kernel(
    (In(u8, 1), In(i64, 1), size, Out(u32, 1)),
    Contract(launch="keys have all bytes, and no more", captured=False),
)
def murmur3(data, lengths, seed, y):  # type: ignore[no-untyped-def] # the signature has them
    """Write a hash for each key.

    Args:
        data: The keys' bytes.
        lengths: How many bytes each has.
        seed: 32 bits.
        y: The hashes.
    """
    begin = data.ctypes.data
    for key in range(lengths.size):
        y[key] = hash_one(begin, lengths[key], np.uint32(seed))
        begin += lengths[key]


@kernel(
    (In(i64, 1), LAYOUT, size, Out(u32, 1), Out(u8, 1)),
    Contract(launch="objects are alive", captured=False),
)
def murmur3_words(words, layout, seed, y, refused):  # type: ignore[no-untyped-def] # the signature has them
    """Write a hash for each word of ASCII.

    Args:
        words: Addresses of objects.
        layout: Where in a ``str`` what lies.
        seed: 32 bits.
        y: The hashes.
        refused: 1 if an object is no such word, whose UTF-8 is elsewhere.
    """
    refused[0] = 0
    for number in range(words.size):
        data, length, each = word_at(words[number], layout)
        if data == 0 or each:
            refused[0] = 1
            return
        y[number] = hash_one(data, length, np.uint32(seed))
