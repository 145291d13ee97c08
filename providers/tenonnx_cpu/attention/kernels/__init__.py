"""Kernels of attention.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

from tenonnx_cpu.jit.code.cpu import cpu

# Keys at a time: their panel and the queries' scores stay in the second-level cache.
KEYS = 256

# Queries of a task at most: whole tiles of rows, as the last tile writes all of its rows. Each task
# packs its keys, which AMX makes most of the time; the scores of so many stay in the second-level
# cache, of which processors with AVX-512 have 1 MiB and those with AMX 2.
QUERIES = 336 if cpu().amx else 168 if cpu().lanes == 16 else 84

# The same where queries see some keys around their own: a task computes what any one sees.
MAX_WINDOW_QUERIES = 84

# Queries, of a head or one each of heads that share keys, for which packing keys does not pay.
MAX_UNPACKED_QUERIES = 8


def workspace(queries: int, keys: int, size: int, value_size: int) -> int:
    """Return how many floats one worker needs."""
    if queries <= MAX_UNPACKED_QUERIES:
        return MAX_UNPACKED_QUERIES * (few_line(keys) + few_line(value_size) + 1)
    wide = -(-value_size // 32) * 32
    scores = QUERIES * min(KEYS, _padded(keys)) if keys else 0
    # Of queries as bfloat16, and of where their pairs are, int64.
    narrow = QUERIES * narrow_line(size) // 4 + max(size + 32, KEYS)
    return scores + KEYS * max(size, wide) + QUERIES * (wide + 2) + narrow + 2048


def narrow_line(size: int) -> int:
    """Return the bytes from one query to the next as bfloat16: of whole tiles, and a line more."""
    return -(-size // 32) * 64 + 64


def few_line(count: int) -> int:
    """Return the floats from one row of a few to the next, with room for a vector more."""
    return -(-count // 32) * 32 + 48


def _padded(count: int) -> int:
    return -(-count // 32) * 32
