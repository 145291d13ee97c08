"""Hashes of tensors and of runs of tokens: MurmurHash3, NGramHashMapping."""

from __future__ import annotations

import numpy as np

from tenonnx import Array, Namespace, OperatorTable

table = OperatorTable("com.microsoft")
op = table.op


def rotated(x: Array, bits: int) -> Array:
    """Rotates 32-bit integers to the left."""
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def murmur3(words: Array, tails: Array, length: int, seed: int) -> Array:
    """Returns MurmurHash3_x86_32 (Appleby 2011) of many keys of one length.

    Args:
        words: Whole four-byte blocks, ``[keys, blocks]`` of uint32, little-endian.
        tails: What is left of each key, as one uint32 filled with zeros, ``[keys]``.
        length: Bytes in a key.
        seed: 32 bits.
    """

    def mixed(block: Array) -> Array:
        return rotated(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)

    state = np.full(len(words), seed & 0xFFFFFFFF, np.uint32)
    for block in words.T:
        state = rotated(state ^ mixed(block), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    if length % 4:
        state = state ^ mixed(tails)
    state = state ^ np.uint32(length)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ (state >> np.uint32(shift))) * np.uint32(factor)
    return state ^ (state >> np.uint32(16))


@op("MurmurHash3", host="all")
def murmur_hash3(_: Namespace, x: Array, *, seed: int = 0, positive: int = 1) -> Array:
    """Hashes every element by itself: a number's bytes, a string's UTF-8."""
    if x.dtype == object:
        keys = [text.encode() for text in x.ravel()]
        hashes = np.empty(len(keys), np.uint32)
        for index, key in enumerate(keys):
            data = np.frombuffer(key.ljust(-(-len(key) // 4) * 4, b"\0"), "<u4")
            whole = len(key) // 4
            tail = data[whole:] if len(data) > whole else np.zeros(1, np.uint32)
            hashes[index] = murmur3(data[None, :whole], tail, len(key), seed)[0]
    else:
        words = np.ascontiguousarray(x).view("<u4").reshape(x.size, -1)
        tails = np.zeros(len(words), np.uint32)
        hashes = murmur3(words, tails, x.dtype.itemsize, seed)
    return hashes.reshape(x.shape).view(np.uint32 if positive else np.int32)


@op("NGramHashMapping", multiple=True)
def ngram_hash_mapping(
    xp: Namespace,
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
) -> tuple[Array, ...]:
    """Hashes every run of 2 to ``max_ngram_size`` tokens, by the sum modulo 2 of their products."""
    before = max_ngram_size - 1
    batch, length = input_ids.shape
    filler = xp.full((batch, before), pad_id, input_ids.dtype)
    if eos_token_id is not None:
        filler[:] = eos_token_id.reshape(-1)[:1]
    past = filler if past_ids is None else past_ids
    tokens = xp.concatenate([past, input_ids], axis=1)
    # Where the history that a token may look back on begins.
    begins = xp.zeros((batch, length), np.int64)
    places = xp.arange(tokens.shape[1])
    if eos_token_id is not None and reset_on_eos:
        ended = xp.where(tokens == eos_token_id.reshape(-1)[:1], places + 1, 0)
        begins = xp.maximum.accumulate(ended, axis=1)[:, before - 1 : -1]
    if segment_ids is not None:
        new = xp.zeros((batch, length), np.int64)
        changed = segment_ids[:, 1:] != segment_ids[:, :-1]
        new[:, 1:] = xp.where(changed, places[before + 1 :], 0)
        begins = xp.maximum(begins, xp.maximum.accumulate(new, axis=1))
    mixed = input_ids * multipliers[0]
    hashes = []
    for back in range(1, max_ngram_size):
        shifted = tokens[:, before - back : before - back + length]
        seen = places[before - back : before - back + length] >= begins
        mixed = mixed ^ (xp.where(seen, shifted, filler[:, :1]) * multipliers[back])
        heads = slice((back - 1) * n_head_per_ngram, back * n_head_per_ngram)
        found = mixed[:, :, None] % vocab_sizes[heads]
        hashes.append(found if head_offsets is None else found + head_offsets[heads])
    return xp.concatenate(hashes, axis=2), tokens[:, tokens.shape[1] - before :]
