"""Hashes of words and numbers on a JIT kernel."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.ml.string_arrays import addresses, layout

MURMUR3 = JitKernel("ml.hashing", "murmur3")
MURMUR3_NUMBERS = JitKernel("ml.hashing", "murmur3_numbers")
MURMUR3_WORDS = JitKernel("ml.hashing", "murmur3_words")


@specialize("MurmurHash3", domain="com.microsoft")
def specialize_murmur3(site: Site, plain: Call) -> Call | None:
    """Hash every element by itself."""
    seed = site.attribute("seed", 0) & 0xFFFFFFFF
    dtype = np.dtype(np.uint32 if site.attribute("positive", 1) else np.int32)
    for kernel in (MURMUR3, MURMUR3_NUMBERS, MURMUR3_WORDS):
        kernel.request()
    return Capturable(functools.partial(_hashed, seed, dtype, plain))


@cacheable
def _hashed(seed: int, dtype: np.dtype[Any], plain: Call, x: NDArray) -> Any:
    if x.dtype == object:
        return _hashed_strings(seed, dtype, plain, x)
    run = MURMUR3_NUMBERS.run
    if run is None or x.itemsize not in (4, 8) or not x.size:
        return plain(x)
    y = empty(x.shape, dtype)
    flat = contiguous(x).reshape(-1).view(np.uint32), y.reshape(-1).view(np.uint32)
    return Launch(run, (flat[0], seed, flat[1], 1), y)


def _hashed_strings(seed: int, dtype: np.dtype[Any], plain: Call, x: NDArray) -> NDArray:
    run = MURMUR3.run
    if run is None:
        return plain(x)  # type: ignore[no-any-return]  # an array kernel's result
    y = np.empty(x.size, np.uint32)
    keys = x.reshape(-1)
    if not _hash_words(keys, seed, y):
        run(*_bytes_of(keys), seed, y)
    return y.reshape(x.shape).view(dtype)


def _hash_words(words: NDArray, seed: int, y: NDArray) -> bool:
    """Hash words of ASCII where they are; return whether it did."""
    run, fields = MURMUR3_WORDS.run, layout()
    if words.dtype != object or run is None or fields is None:
        return False
    refused = np.zeros(1, np.uint8)
    run(addresses(words), *fields, seed, y, refused)
    return not refused[0]


def _bytes_of(keys: NDArray) -> tuple[NDArray, NDArray]:
    """Return the bytes of all words in UTF-8, and how many each has."""
    words: list[Any] = keys.tolist()
    joined = "".join(words)
    whole = joined.encode()
    if len(whole) > len(joined):
        words = [*map(str.encode, words)]
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    return np.frombuffer(whole, np.uint8), lengths
