"""The seed of the process, from which operators that draw without one of their own get theirs."""

from __future__ import annotations

import random
import threading

from tenonnx.errors import InvalidArgument

_lock = threading.RLock()
_source: random.Random | None = None


def set_seed(seed: int) -> None:
    """Have operators that draw random numbers without a ``seed`` attribute repeat themselves.

    Draws that follow depend on the seed and on how many were made since it was set: the same runs
    in the same order, one at a time, give the same outputs. They are not onnxruntime's numbers,
    which no specification fixes.

    Raises:
        InvalidArgument: The seed is not an integer.
    """
    global _source
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise InvalidArgument(f"expected an integer as seed, got {seed!r}")
    with _lock:
        _source = random.Random(seed.__index__())


def next_seed() -> int | None:
    """Return the seed of the next draw, of 32 bits; ``None`` if every draw is to be a new one."""
    with _lock:
        return None if _source is None else _source.getrandbits(32)
