"""Along which axes operators can be cut into chunks; see `chunks`.

Every rule is called as ``CHUNKED`` of `provider` calls it. ``None`` is no axis, or no fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from tenonnx.operators import Array
from tenonnx.records import NamedTuple

LONGEST = 1 << 18
"""Elements of a chunk: the slowest operators take some hundredths of a second for them."""

OBJECTS = 1 << 14
"""Strings of a chunk."""

TEXTS = 1 << 11
"""Numbers that are written as strings at once."""


class Given(NamedTuple):
    """A rule's data about a node, beside its inputs."""

    op_type: str
    version: int
    attributes: Mapping[str, Any]
    outputs: int = 1


class Cut(NamedTuple):
    """The cut of an operator: the axis of each input, ``None`` of what all chunks take whole.

    ``output`` is the axis of all outputs.
    """

    inputs: tuple[int | None, ...]
    output: int
    length: int
    work: int
    longest: int = LONGEST


STRING = 8


def best(shape: Sequence[int], axes: Iterable[int]) -> int | None:
    """Returns the first of some axes along which chunks are small enough, or else the longest."""
    long = [axis for axis in axes if shape[axis] > 1]
    size = math.prod(shape)
    fine = (axis for axis in long if size <= LONGEST * shape[axis])
    return next(fine, max(long, key=lambda axis: shape[axis], default=None))


def aligned(inputs: Sequence[Array | None], axis: int, rank: int) -> tuple[int | None, ...]:
    """Returns an axis of what inputs broadcast to as each input's, ``None`` where it repeats."""
    own = (None if x is None else axis - rank + x.ndim for x in inputs)
    return tuple(
        None if x is None or at is None or at < 0 or x.shape[at] == 1 else at
        for x, at in zip(inputs, own, strict=True)
    )


def pointwise(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Inputs broadcast, and an element of the result depends on one of each."""
    if given.version < 7 and len(inputs) > 1:
        return None  # one input's axes stand where an attribute says
    shape = np.broadcast_shapes(*(x.shape for x in inputs if x is not None))
    axis = best(shape, range(len(shape)))
    if axis is None:
        return None
    longest = OBJECTS if any(x is not None and x.dtype == object for x in inputs) else LONGEST
    if given.attributes.get("to") == STRING:
        longest = TEXTS
    where = aligned(inputs, axis, len(shape))
    return Cut(where, axis, shape[axis], math.prod(shape), longest)


def first(x: Array, axis: int | None, others: int, output: int | None = None) -> Cut | None:
    """Returns the cut of the first input alone."""
    if axis is None:
        return None
    at = axis if output is None else output
    return Cut((axis, *(None,) * others), at, x.shape[axis], x.size)


def reduction(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Cut along an axis that is kept."""
    x = inputs[0]
    axes = given.attributes.get("axes")
    if len(inputs) > 1 and inputs[1] is not None:
        axes = inputs[1].tolist()
    if "Arg" in given.op_type:
        axes = [given.attributes.get("axis", 0)]
    if not axes:
        return None
    gone = set(normalize_axis_tuple(axes, x.ndim))
    axis = best(x.shape, (axis for axis in range(x.ndim) if axis not in gone))
    if axis is None:
        return None
    kept = given.attributes.get("keepdims", 1)
    output = axis if kept else axis - sum(each < axis for each in gone)
    return first(x, axis, len(inputs) - 1, output)


def along(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """The cut of operators along one axis, an attribute, that keep the shape."""
    x = inputs[0]
    own = normalize_axis_index(given.attributes.get("axis", -1), x.ndim)
    axis = best(x.shape, (each for each in range(x.ndim) if each != own))
    return first(x, axis, len(inputs) - 1)


def softmax(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Before version 13, all axes from the attribute's on are one."""
    if given.version >= 13:
        return along(given, inputs)
    x = inputs[0]
    axis = normalize_axis_index(given.attributes.get("axis", 1), x.ndim)
    return first(x, best(x.shape, range(axis)), 0)


def last_axes(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Norms over all axes from the attribute's on, with factors that broadcast."""
    x = inputs[0]
    own = normalize_axis_index(given.attributes.get("axis", -1), x.ndim)
    axis = best(x.shape, range(own))
    if axis is None:
        return None
    return Cut(aligned(inputs, axis, x.ndim), axis, x.shape[axis], x.size)


def batch(_given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Images of a batch are apart."""
    return first(inputs[0], best(inputs[0].shape, [0]), len(inputs) - 1)


def matrices(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Matrices of a stack are apart."""
    return batch(given, inputs) if inputs[0].ndim > 2 else None


def channels(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Channels, too, each with factors of its own."""
    x = inputs[0]
    axis = best(x.shape, [0, 1])
    if axis != 1:
        return batch(given, inputs)
    return Cut((1, *(None if each is None else 0 for each in inputs[1:])), 1, x.shape[1], x.size)


def batch_norm(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Training takes statistics of the whole batch."""
    if given.version < 7 or given.outputs > 1 or given.attributes.get("training_mode", 0):
        return None
    return channels(given, inputs)


def samples(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Rows of features are apart; a vector is one of them."""
    return batch(given, inputs) if inputs[0].ndim == 2 else None


def planes(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Channels, too, which have no factors; places of the greatest count through all of them."""
    if given.outputs > 1:
        return None
    x = inputs[0]
    axes = [0] if given.attributes.get("channels_last") else [0, 1]
    return first(x, best(x.shape, axes), len(inputs) - 1)


def signals(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Those of a batch are apart."""
    x = inputs[0]
    own = given.attributes.get("signal_ndim", 1) + (given.op_type == "Irfft")
    return batch(given, inputs) if x.ndim > own else None


def all_but_channels(_given: Given, inputs: Sequence[Any]) -> Cut | None:
    x = inputs[0]
    return first(x, best(x.shape, (axis for axis in range(x.ndim) if axis != 1)), 0)


def mean_variance(given: Given, inputs: Sequence[Any]) -> Cut | None:
    x = inputs[0]
    gone = set(normalize_axis_tuple(given.attributes.get("axes", [0, 2, 3]), x.ndim))
    return first(x, best(x.shape, (axis for axis in range(x.ndim) if axis not in gone)), 0)


def together(_given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Both inputs have the batch, or the first one alone more channels than chunks."""
    x, grid = inputs
    if x.shape[0] == 1:
        return first(x, best(x.shape, [1]), 1)
    return Cut((0, 0), 0, x.shape[0], x.size + grid.size) if len(x) == len(grid) else None


def quantization(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Scales and zero points are one, one for each place of an axis, or one for each block."""
    x, scale, *rest = inputs
    axis = best(x.shape, range(x.ndim))
    if axis is None or scale.size == 1:
        return first(x, axis, len(inputs) - 1)
    own = normalize_axis_index(given.attributes.get("axis", 1), x.ndim)
    blocked = given.attributes.get("block_size", 0) > 0
    if blocked or axis != own:
        axis = best(x.shape, (each for each in range(x.ndim) if each != own))
        if axis is None:
            return None
    factor = axis if blocked else 0 if axis == own else None
    where = (None if each is None else factor for each in (scale, *rest))
    return Cut((axis, *where), axis, x.shape[axis], x.size)


def gather(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Cut the indices."""
    data, indices = inputs
    axis = normalize_axis_index(given.attributes.get("axis", 0), data.ndim)
    work = indices.size * (data.size // max(data.shape[axis], 1))
    at = best(indices.shape, range(indices.ndim))
    return None if at is None else Cut((None, at), axis + at, indices.shape[at], work)


def gather_elements(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Cut the indices, and along another axis than what is taken from also the data."""
    data, indices = inputs
    own = normalize_axis_index(given.attributes.get("axis", 0), data.ndim)
    at = best(indices.shape, range(indices.ndim))
    if at is None:
        return None
    return Cut((None if at == own else at, at), at, indices.shape[at], indices.size)


def gather_nd(given: Given, inputs: Sequence[Any]) -> Cut | None:
    data, indices = inputs
    if indices.ndim < 2:
        return None
    apart = given.attributes.get("batch_dims", 0) > 0
    depth = indices.shape[-1] + given.attributes.get("batch_dims", 0)
    work = indices.size * math.prod(data.shape[depth:])
    return Cut((0 if apart else None, 0), 0, len(indices), work)


def scatter_elements(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Cut along another axis than what is scattered along, of which the indices have all."""
    data, indices = inputs[:2]
    own = normalize_axis_index(given.attributes.get("axis", 0), data.ndim)
    axes = (at for at in range(data.ndim) if at != own and data.shape[at] == indices.shape[at])
    at = best(data.shape, axes)
    return None if at is None else Cut((at, at, at), at, data.shape[at], data.size)


def one_hot(given: Given, inputs: Sequence[Any]) -> Cut | None:
    indices, depth, _ = inputs
    new = normalize_axis_index(given.attributes.get("axis", -1), indices.ndim + 1)
    at = best(indices.shape, range(indices.ndim))
    if at is None:
        return None
    output = at + (new <= at)
    return Cut((at, None, None), output, indices.shape[at], indices.size * int(depth.item()))


def rotary(_given: Given, inputs: Sequence[Any]) -> Cut | None:
    """The batch; caches have it where there are no positions."""
    x, *rest = inputs
    where = (0 if each is not None and (each.ndim == 3 or each.dtype.kind == "i") else None
             for each in rest)  # fmt: skip
    return Cut((0, *where), 0, len(x), x.size) if len(x) > 1 else None


def heads(_given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Samples, or the only one's heads, if each has keys of its own."""
    q, k, v = inputs[:3]
    work = math.prod(q.shape[:-1]) * k.shape[-2]
    if len(q) > 1:
        whole = any(x is not None and x.ndim > 2 and len(x) != len(q) for x in inputs[:3])
        where = [None if x is None or x.ndim < 3 or len(x) == 1 else 0 for x in inputs]
        mask, lengths = (inputs[i] if i < len(inputs) else None for i in (3, 6))
        if whole or (mask is not None and mask.ndim == 3):
            return None
        if lengths is not None:
            where[6] = 0
        return Cut(tuple(where), 0, len(q), work)
    if not q.ndim == k.ndim == v.ndim == 4 or not q.shape[1] == k.shape[1] == v.shape[1]:
        return None
    return Cut(aligned(inputs, 1, 4), 1, q.shape[1], work) if q.shape[1] > 1 else None


def reverse_sequence(given: Given, inputs: Sequence[Any]) -> Cut | None:
    x = inputs[0]
    own = given.attributes.get("batch_axis", 1)
    return Cut((own, 0), own, x.shape[own], x.size)


def crops(_given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Each box of an image makes a crop of its own."""
    x, boxes, _, size = inputs
    if len(boxes) < 2:
        return None
    work = len(boxes) * x.shape[1] * math.prod(size.tolist())
    return Cut((None, 0, 0, None), 0, len(boxes), work)


def transform(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """A Fourier transform along another axis than the batch's."""
    x = inputs[0]
    axis = given.attributes.get("axis", 1) if given.version < 20 else -2
    if len(inputs) > 2 and inputs[2] is not None:
        axis = int(inputs[2].item())
    return None if normalize_axis_index(axis, x.ndim) == 0 else batch(given, inputs)


def largest(given: Given, inputs: Sequence[Any]) -> int:
    """Returns the elements of the largest array: of the inputs, or an attention's scores."""
    arrays = [x for x in inputs if x is not None]
    found: int = max((x.size for x in arrays), default=0)
    if not given.op_type.endswith("Attention"):
        return found
    count = given.attributes.get("q_num_heads") or given.attributes.get("num_heads", 1)
    keys = max((x.shape[-2] for x in arrays if x.ndim > 1), default=1)
    scores: int = count * math.prod(arrays[0].shape[:-1]) * keys
    return max(found, scores)


def whole(_given: Given, _inputs: Sequence[Any]) -> None:
    """Nothing is apart."""


light = written = pointwise
