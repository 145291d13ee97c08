"""Sequences are Python lists, empty optionals ``None``; no element is ever copied."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.slicing import pieces

table = OperatorTable()
op = table.op


@op("SequenceConstruct", since=11)
def sequence_construct(_xp: Namespace, *inputs: Array) -> list[Array]:
    return list(inputs)


@op("SequenceEmpty", since=11)
def sequence_empty(
    _xp: Namespace,
    *,
    dtype: int = 1,  # noqa: ARG001 - a list needs no element type
) -> list[Array]:
    return []


@op("SequenceInsert", since=11, host=(2,))
def sequence_insert(
    _xp: Namespace, sequence: list[Array], tensor: Array, position: Array | None = None
) -> list[Array]:
    """Insert before ``position`` in [-n, n], at the end by default."""
    place = len(sequence) if position is None else int(position.item())
    if not -len(sequence) <= place <= len(sequence):
        raise ValueError(
            f"expected a position in [{-len(sequence)}, {len(sequence)}], found {place}"
        )
    return [*sequence[:place], tensor, *sequence[place:]]


@op("SequenceErase", since=11, host=(1,))
def sequence_erase(
    _xp: Namespace, sequence: list[Array], position: Array | None = None
) -> list[Array]:
    """Drop the element at ``position``, the last by default."""
    place = _position(sequence, -1 if position is None else int(position.item()))
    return sequence[:place] + sequence[place + 1 :]


@op("SequenceAt", since=11, host=(1,))
def sequence_at(_xp: Namespace, sequence: list[Array], position: Array) -> Array:
    return sequence[_position(sequence, int(position.item()))]


@op("SequenceLength", since=11, host_output=True)
def sequence_length(_xp: Namespace, sequence: list[Array]) -> Array:
    return np.array(len(sequence), np.int64)


def _position(sequence: list[Array], place: int) -> int:
    if not -len(sequence) <= place < len(sequence):
        raise ValueError(
            f"expected a position in [{-len(sequence)}, {len(sequence) - 1}], found {place}"
        )
    return place % len(sequence)


@op("ConcatFromSequence", since=11)
def concat_from_sequence(
    xp: Namespace, sequence: list[Array], *, axis: int, new_axis: int = 0
) -> Array:
    if not sequence:
        raise ValueError("expected a sequence of at least one tensor, found an empty one")
    return xp.stack(sequence, axis) if new_axis else xp.concatenate(sequence, axis)


@op("SplitToSequence", since=11, host=(1,))
def split_to_sequence(
    _xp: Namespace, x: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Array]:
    """Cut into views: of the lengths in a 1-D ``split``, or of one length, the last shorter.

    Without ``split`` the length is 1, and ``keepdims=0`` drops the axis.
    """
    axis = normalize_axis_index(axis, x.ndim)
    total = x.shape[axis]
    if split is not None and split.ndim == 1:
        return list(pieces(x, split.tolist(), axis))
    chunk = 1 if split is None else int(split.item())
    if chunk < 1:
        raise ValueError(f"expected a positive split, found {chunk}")
    parts = pieces(x, [min(chunk, total - start) for start in range(0, total, chunk)], axis)
    return [part.squeeze(axis) for part in parts] if split is None and not keepdims else list(parts)


@op("Optional", since=15)
def optional(
    _xp: Namespace,
    x: Any = None,
    *,
    type: Any = None,  # noqa: A002, ARG001 - the schema's name; None needs no element type
) -> Any:
    return x


@op("OptionalHasElement", since=15, host_output=True)
def optional_has_element(_xp: Namespace, x: Any = None) -> Array:
    return np.array(x is not None)


@op("OptionalGetElement", since=15)
def optional_get_element(_xp: Namespace, x: Any = None) -> Any:
    if x is None:
        raise ValueError("expected an optional with an element, found an empty one")
    return x
