"""Products of stacks of matrices, in pieces between which a run can be stopped."""

from __future__ import annotations

import numpy as np

from tenonnx.interruption import pieces
from tenonnx.operators import Array, Namespace

LONGEST = 1 << 29
"""Products of a piece, some hundredths of a second of BLAS's."""

CHAIN = 256
"""Products of float32 that are added one after the other, as many as onnxruntime adds so.

BLAS has no limit where matrices are small: of 1,000 positive ones it loses 19 ulp, so 5.
"""

DOT = 4
"""By so much longer a chain may be where BLAS has dot products, each of them in many parts.

Of 1,000 positive ones it loses 2.6 ulp at once, 1.7 in chains, which take half as long again.
"""

NARROW = 4
"""By so much sums of chains are slower where they are nearly as many as products."""

SUMMANDS = 1 << 17
"""Elements of the products of all chains if they are made at once: numpy is called less often."""

SLOWER = 16
"""By so much numpy is slower for what BLAS has not."""


def matmul(
    xp: Namespace, a: Array, b: Array, out: Array | None = None, *, chain: int = CHAIN
) -> Array:
    """Return ``xp.matmul(a, b)``; numpy's is cut if it takes long.

    Of numpy's float32, ``chain`` products at most are added one after the other.

    Raises:
        ValueError: The shapes do not fit.
    """
    if xp is not np or min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-2]:
        return xp.matmul(a, b) if out is None else xp.matmul(a, b, out=out)
    longest = LONGEST if a.dtype == b.dtype and a.dtype.kind in "fc" else LONGEST // SLOWER
    if b.shape[-1] <= chain < a.shape[-1]:  # few columns, summed up in long chains
        longest //= NARROW
    if a.size * b.size <= longest * a.shape[-1]:
        return _product(a, b, out, chain)
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    if np.prod(shape, dtype=np.float64) * a.shape[-1] <= longest:
        return _product(a, b, out, chain)
    if out is None:
        out = np.empty_like(a, np.result_type(a, b), order="C", shape=shape)
    _fill(a, b, out, longest, chain)
    return out


def _fill(a: Array, b: Array, out: Array, longest: int, chain: int) -> None:
    """Write the product, cut along the first axis that can be."""
    work = out.size * a.shape[-1]
    axis = next((axis for axis, length in enumerate(out.shape) if length > 1), None)
    if work <= longest or axis is None:
        _product(a, b, out, chain)
        return
    for some in pieces(out.shape[axis], work, longest):
        part = out[(slice(None),) * axis + (some,)]
        _fill(*_operands(a, b, out.ndim - axis, some), part, longest, chain)


def _product(a: Array, b: Array, out: Array | None, chain: int) -> Array:
    """Return the product, of float32 the sum of products of ``chain`` columns at most."""
    depth = a.shape[-1]
    if a.shape[-2] == 1 and b.strides[-2] == b.itemsize:
        chain *= DOT
    if depth <= chain or not a.dtype == b.dtype == np.float32:
        return np.matmul(a, b, out=out)
    count = -(-depth // chain)
    step = -(-depth // count)
    if count * step == depth and a.size * b.size * count <= SUMMANDS * depth * depth:
        return _at_once(a, b, out, count)
    y = np.matmul(a[..., :step], b[..., :step, :], out=out)
    part = np.empty_like(y)
    for start in range(step, depth, step):
        y += np.matmul(a[..., start : start + step], b[..., start : start + step, :], out=part)
    return y


def _at_once(a: Array, b: Array, out: Array | None, count: int) -> Array:
    """Return the sum of products of so many columns, all of which are made at first."""
    rows = a.reshape(*a.shape[:-1], count, -1).swapaxes(-2, -3)
    columns = b.reshape(*b.shape[:-2], count, -1, b.shape[-1])
    return np.add.reduce(np.matmul(rows, columns), -3, out=out)


def _operands(a: Array, b: Array, axis: int, some: slice) -> tuple[Array, Array]:
    """Return what makes a part of the product along an axis, counted from the last one, 1."""
    own = (..., some, *(slice(None),) * (axis - 1))
    if axis <= 2:  # columns are b's, rows are a's
        return (a, b[own]) if axis == 1 else (a[own], b)
    first, second = (x[own] if x.ndim >= axis and x.shape[-axis] > 1 else x for x in (a, b))
    return first, second
