"""Rotary position embedding with caches of angles, of one and of three positions per token."""

from __future__ import annotations

from typing import Any

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.attention import check_positions
from tenonnx_array.attention import rotary_embedding as rotate

table = OperatorTable("com.microsoft")
op = table.op


def turned(
    xp: Namespace,
    x: Array,
    cos: Array,
    sin: Array,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Array:
    """Rotate by angles of shape (batch, length, pairs)."""
    width = 2 * cos.shape[-1]
    if x.ndim == 3 and not num_heads:
        num_heads = x.shape[-1] // (width if not rotary_embedding_dim else x.shape[-1])
    return rotate(
        xp,
        x,
        cos,
        sin,
        interleaved=interleaved,
        num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim or width,
    )


@op(
    "RotaryEmbedding",
    like=[turned],
    shapes=(
        "input: B ...; len(input) in (3, 4); position_ids: | 1 | B length; cos_cache: M P; "
        "sin_cache: M P; length = input[1] if len(input) == 3 else input[2]"
    ),
)
def rotary_embedding(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    is_packed_batching: int = 0,  # noqa: ARG001 - rows of tokens need no batches
    scale: float = 1.0,  # noqa: ARG001 - onnxruntime accepts it and applies none
    **attributes: Any,
) -> Array:
    """Return the input with pairs of elements of every head rotated by its position's angles.

    The input is (batch, length, heads * size) or (batch, heads, length, size). One position is
    that of the first token; else there is one per token. Without ``num_heads`` a head is as wide
    as the angles.
    """
    length = input.shape[1 if input.ndim == 3 else 2]
    if position_ids.size == 1 and position_ids.ndim == 1:
        position_ids = position_ids + xp.arange(length)
    positions = xp.broadcast_to(position_ids, (input.shape[0], length))
    check_positions(positions, len(cos_cache))
    return turned(xp, input, cos_cache[positions], sin_cache[positions], **attributes)


@op(
    "MRotaryEmbedding",
    like=[turned],
    shapes=(
        "input: B ...; len(input) in (3, 4); position_ids: 3 B length; cos_cache: M P; "
        "sin_cache: M P; length = input[1] if len(input) == 3 else input[2]"
    ),
)
def multimodal_rotary_embedding(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    is_packed_batching: int = 0,  # noqa: ARG001 - rows of tokens need no batches
    mrope_layout: int = 0,
    mrope_section: tuple[int, ...],
    scale: float = 1.0,  # noqa: ARG001 - onnxruntime accepts it and applies none
    **attributes: Any,
) -> Array:
    """Rotate by angles of which each comes from a token's time, height or width.

    ``position_ids`` is (3, batch, length). Layout 0 takes ``mrope_section`` angles of each in
    turn; layout 1 alternates between the three as long as a section lasts, then takes the time's.

    Raises:
        ValueError: The sections are not three, or do not add up to the number of angles.
    """
    if len(mrope_section) != 3 or sum(mrope_section) != cos_cache.shape[-1]:
        raise ValueError(
            f"expected three sections that add up to {cos_cache.shape[-1]} angles, "
            f"found {mrope_section}"
        )
    check_positions(position_ids, len(cos_cache))
    time, height, width = mrope_section
    angles = xp.arange(cos_cache.shape[-1])
    if mrope_layout:
        source = xp.where((angles % 3 == 1) & (angles < 3 * height), 1, 0)
        source = xp.where((angles % 3 == 2) & (angles < 3 * width), 2, source)
    else:
        source = xp.where(angles < time, 0, xp.where(angles < time + height, 1, 2))
    positions = xp.moveaxis(position_ids, 0, -1)[..., source]
    return turned(
        xp, input, cos_cache[positions, angles], sin_cache[positions, angles], **attributes
    )
