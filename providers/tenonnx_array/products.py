"""Products of stacks of matrices, with sums as short as onnxruntime's."""

from __future__ import annotations

import numpy as np

from tenonnx.operators import Array, Namespace

# Products of float32 that are added one after the other, as many as onnxruntime adds so.
#
# BLAS has no limit where matrices are small: of 1,000 positive ones it loses 19 ulp, so 5.
CHAIN_TERMS = 256

# By so much longer a chain may be where BLAS has dot products, each of them in many parts.
#
# Of 1,000 positive ones it loses 2.6 ulp at once, 1.7 in chains, which take half as long again.
DOT_CHAIN_FACTOR = 4

# Elements of the products of all chains if they are made at once: numpy is called less often.
MAX_SUMMANDS = 1 << 17


def matmul(
    xp: Namespace, a: Array, b: Array, out: Array | None = None, *, chain: int = CHAIN_TERMS
) -> Array:
    """Return ``xp.matmul(a, b)``.

    Of numpy's float32, ``chain`` products at most are added one after the other.

    Raises:
        ValueError: The shapes do not fit.
    """
    if xp is not np or min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-2]:
        return xp.matmul(a, b) if out is None else xp.matmul(a, b, out=out)
    return _product(a, b, out, chain)


def _product(a: Array, b: Array, out: Array | None, chain: int) -> Array:
    """Return the product, of float32 the sum of products of ``chain`` columns at most."""
    depth = a.shape[-1]
    if a.shape[-2] == 1 and b.strides[-2] == b.itemsize:
        chain *= DOT_CHAIN_FACTOR
    if depth <= chain or not a.dtype == b.dtype == np.float32:
        return np.matmul(a, b, out=out)
    count = -(-depth // chain)
    step = -(-depth // count)
    if count * step == depth and a.size * b.size * count <= MAX_SUMMANDS * depth * depth:
        return _at_once(a, b, out, count)
    y = np.matmul(a[..., :step], b[..., :step, :], out=out)
    part = np.empty_like(y)
    for start in range(step, depth, step):
        y += np.matmul(a[..., start : start + step], b[..., start : start + step, :], out=part)
    return y


def _at_once(a: Array, b: Array, out: Array | None, count: int) -> Array:
    """Return the sum of products of so many columns, all of which are made at first."""
    step = a.shape[-1] // count
    rows = a.reshape(*a.shape[:-1], count, step).swapaxes(-2, -3)
    columns = b.reshape(*b.shape[:-2], count, step, b.shape[-1])
    return np.add.reduce(np.matmul(rows, columns), -3, out=out)
