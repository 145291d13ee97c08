"""Attention masks of integers, in each of their shapes, as what is added to the scores."""

from __future__ import annotations

import math

from tenonnx import Array, Namespace

# The default summand of a hidden key's score: hidden keys rank last but exist.
MASK_FILTER_VALUE = -10000.0


def added(
    xp: Namespace,
    mask: Array | None,
    batch: int,
    queries: int,
    keys: int,
    value: float = MASK_FILTER_VALUE,
) -> Array | None:
    """Return ``value`` where a mask hides a key and 0 elsewhere, (batch, 1, 1 or queries, keys).

    The mask is one of: ends (batch,); ends and then starts (2 * batch,); lengths and then
    offsets (3 * batch + 2,); whether a key is seen, (batch, keys), (batch, queries, keys) or
    (batch, 1, most, most), where the last queries of all keys count.

    Raises:
        ValueError: A mask of another shape.
    """
    if mask is None:
        return None
    seen = _seen(xp, mask, batch, queries, keys)
    return xp.where(seen, xp.float32(0), xp.float32(value))


def _seen(xp: Namespace, mask: Array, batch: int, queries: int, keys: int) -> Array:
    places = xp.arange(keys)
    if mask.shape == (batch,) or mask.shape == (3 * batch + 2,):
        return (places < mask[:batch, None])[:, None, None, :]
    if mask.shape == (2 * batch,):
        ends, starts = mask[:batch, None], mask[batch:, None]
        return ((places >= starts) & (places < ends))[:, None, None, :]
    if mask.ndim == 2 and mask.shape == (batch, keys):
        return (mask > 0)[:, None, None, :]
    if mask.shape == (batch, queries, keys):
        return (mask > 0)[:, None]
    if mask.ndim == 4 and mask.shape[1] == 1 and mask.shape[3] >= keys >= queries:
        return mask[:, :, keys - queries : keys, :keys] > 0
    raise ValueError(
        f"expected a mask of shape ({batch},), ({2 * batch},), ({batch}, {keys}) or "
        f"({batch}, {queries}, {keys}), found {mask.shape}"
    )


def causal(xp: Namespace, queries: int, keys: int) -> Array:
    """Return 0 where one of the last ``queries`` of the keys sees a key, and -inf elsewhere."""
    seen = xp.arange(keys) <= xp.arange(keys - queries, keys)[:, None]
    return xp.where(seen, xp.float32(0), xp.float32(-math.inf))


def total(*parts: Array | None) -> Array | None:
    """Return the sum of what there is to add."""
    given = [part for part in parts if part is not None]
    return None if not given else sum(given[1:], start=given[0])
