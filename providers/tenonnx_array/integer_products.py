"""Products of integers through BLAS, in floats whose sums are exact: much faster than loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tenonnx.operators import Array, Namespace

# Elements of all operands for which BLAS is worth the conversions.
MIN_ELEMENTS = 1 << 10

# The greatest sums that are exact.
EXACT = ((1 << 24, np.float32), (1 << 53, np.float64))


def through_floats(
    xp: Namespace, operands: Sequence[Array], terms: int, function: Callable[..., Array]
) -> Array:
    """Return a function of arrays, of floats if the arrays are of integers and sums are exact.

    Args:
        xp: The array namespace; others than numpy have loops of their own.
        operands: The arrays, of one dtype.
        terms: How many products the function adds up at most.
        function: Sums of products, linear in each array.
    """
    dtype = operands[0].dtype
    if xp is np and dtype.kind in "iu" and sum(x.size for x in operands) >= MIN_ELEMENTS:
        peaks = [max(-int(x.min(initial=0)), int(x.max(initial=0))) for x in operands]
        greatest = terms * math.prod(max(peak, 1) for peak in peaks)
        for limit, wide in EXACT:
            if greatest <= limit:
                y = function(*(x.astype(wide) for x in operands))
                return y.astype(np.int64).astype(dtype, copy=False)
    return function(*operands)


def summed_terms(equation: str, operands: Sequence[Array]) -> int:
    """Return how many products an equation of Einsum adds up for each element of its result."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    kept = set(output) if arrow else {name for name in inputs if inputs.count(name) == 1}
    lengths: dict[str, int] = {}
    for names, x in zip(inputs.split(","), operands, strict=False):
        before, _, after = names.partition("...")
        for each, sizes in ((before, x.shape), (after[::-1], x.shape[::-1])):
            for name, size in zip(each, sizes, strict=False):
                lengths[name] = max(size, lengths.get(name, 0))
    return math.prod(size for name, size in lengths.items() if name not in kept)
