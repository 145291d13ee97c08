"""Einstein's sums of products, in pieces between which a run can be stopped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from tenonnx.interruption import pieces
from tenonnx.operators import Array, Namespace
from tenonnx_array import products

DOTS = "..."


def einsum(xp: Namespace, equation: str, operands: Sequence[Array]) -> Array:
    """Return ``xp.einsum(equation, *operands)``; numpy's of two operands is cut if it takes long.

    Raises:
        ValueError: The equation is none, or does not fit the operands.
    """
    if xp is np and len(operands) == 2:
        return _of_two(equation.replace(" ", ""), *operands)
    # Without optimize no operand ever reaches BLAS; with it a lone operand pays for the planning.
    return xp.einsum(equation, *operands, optimize=len(operands) > 1)


def _of_two(equation: str, a: Array, b: Array) -> Array:
    """Return the sum, cut along the longest axis of it that has a label."""
    read, arrow, written = equation.partition("->")
    first, comma, second = read.partition(",")
    sizes = _sizes(zip((first, second), (a, b), strict=True))
    own = [label for label in written if sizes.get(label, 0) > 1]
    # Every axis has at most one label; axes that broadcast without one count as repeated.
    work = math.prod(sizes.values()) * max(_unnamed(first, a), _unnamed(second, b))
    quick = a.dtype.kind in "fc" and not set(first) & set(second) & set(written)
    longest = products.LONGEST if quick else products.LONGEST // products.SLOWER
    if not (arrow and comma and own) or work <= longest:
        return np.einsum(equation, a, b, optimize=True)
    label = max(own, key=lambda each: sizes[each])
    parts = [
        np.einsum(equation, _part(first, a, label, some), _part(second, b, label, some),
                  optimize=True)
        for some in pieces(sizes[label], work, longest)
    ]  # fmt: skip
    return np.concatenate(parts, axis=_axes(written, label)[0])


def _axes(term: str, label: str) -> list[int]:
    """Return where a label is in a term: behind dots counted from the end."""
    dots = term.find(DOTS)
    places = (place for place, each in enumerate(term) if each == label)
    return [place - len(term) if 0 <= dots < place else place for place in places]


def _sizes(operands: Iterable[tuple[str, Array]]) -> dict[str, int]:
    """Return how long the axes of labels are; of none if an operand does not fit."""
    sizes: dict[str, int] = {}
    for term, operand in operands:
        named = term.replace(DOTS, "")
        if len(named) > operand.ndim:
            return {}
        for label in named:
            for axis in _axes(term, label):
                length = operand.shape[axis]
                if length != 1 and sizes.get(label, 1) not in (1, length):
                    return {}
                sizes[label] = length if length != 1 else sizes.get(label, 1)
    return sizes


def _unnamed(term: str, operand: Array) -> int:
    """Return how many elements the axes have that dots stand for."""
    dots = term.find(DOTS)
    behind = operand.ndim - len(term) + dots + len(DOTS)
    return math.prod(operand.shape[dots:behind]) if dots >= 0 else 1


def _part(term: str, operand: Array, label: str, some: slice) -> Array:
    """Return what of an operand goes into a part of the sum; axes of one element broadcast."""
    index = [slice(None)] * operand.ndim
    for axis in _axes(term, label):
        if operand.shape[axis] > 1:
            index[axis] = some
    return operand[tuple(index)]
