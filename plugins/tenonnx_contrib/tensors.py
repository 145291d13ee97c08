"""Tensors cut, joined, generated and compared: what became ONNX operators later, and the rest."""

from __future__ import annotations

import math

from tenonnx import Array, Namespace, OperatorTable
from tenonnx.process.interruption import check
from tenonnx_array import generate, index, pad
from tenonnx_array.dtypes import accumulator

table = OperatorTable("com.microsoft")
op = table.op

# Numbers that distances are made of at once: a few MiB.
MAX_DIFFERENCES = 1 << 20


@op("SampleOp")
def sample_op(xp: Namespace, X: Array) -> Array:
    """Return what is given."""
    del xp
    return X


op("GatherND", without=["batch_dims"])(index.gather_nd)
op("Trilu", host=(1,))(pad.trilu)


@op("Pad", host=(1, 2), shapes="pads: n; value: | 1")
def pad_1(
    xp: Namespace, data: Array, pads: Array, value: Array | None = None, *, mode: str = "constant"
) -> Array:
    return pad.pad(xp, data, pads, value, mode=mode)


@op("Range", host=(0, 1, 2), shapes="start limit delta: | 1")
def range_1(xp: Namespace, start: Array, limit: Array, delta: Array | None = None) -> Array:
    """Return the numbers from start to limit; each is a scalar or has one element."""
    step = start.dtype.type(1) if delta is None else delta.reshape(())
    return generate.range_(xp, start.reshape(()), limit.reshape(()), step)


@op("Unique", multiple=True, shapes="x: n")
def unique(xp: Namespace, x: Array) -> tuple[Array, ...]:
    """Return the values of a vector as they first occur, each element's number, and the counts."""
    values, _, numbers, counts = index.unique(xp, x, sorted=0)
    return values, numbers, counts


@op("ExpandDims", host=(1,))
def expand_dims(xp: Namespace, X: Array, axis: Array) -> Array:
    return xp.expand_dims(X, int(axis.item()))


@op("UnfoldTensor")
def unfold_tensor(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    *,
    dim: int = -1,
    size: int,
    step: int = 1,
) -> Array:
    """Return windows along an axis, each as a new last axis."""
    windows = xp.lib.stride_tricks.sliding_window_view(input, size, axis=dim)
    return windows[(slice(None),) * (dim % input.ndim) + (slice(None, None, step),)]


@op("Inverse")
def inverse(xp: Namespace, X: Array) -> Array:
    return xp.linalg.inv(X.astype(accumulator(X.dtype), copy=False)).astype(X.dtype, copy=False)


@op("Rfft")
def rfft(
    xp: Namespace, X: Array, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1
) -> Array:
    """Return the Fourier transform of the last ``signal_ndim`` axes, as pairs on a new last axis.

    Raises:
        ValueError: Both sides, or a normalization, are asked for.
    """
    check_fourier(normalized, onesided)
    y = xp.fft.rfftn(X.astype(accumulator(X.dtype)), axes=tuple(range(-signal_ndim, 0)))
    return xp.stack((y.real, y.imag), axis=-1).astype(X.dtype)


@op("Irfft")
def irfft(
    xp: Namespace, X: Array, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1
) -> Array:
    """Return the inverse of Rfft, of an even length.

    Raises:
        ValueError: Both sides, or a normalization, are asked for.
    """
    check_fourier(normalized, onesided)
    x = X.astype(accumulator(X.dtype))
    axes = tuple(range(-signal_ndim, 0))
    return xp.fft.irfftn(x[..., 0] + 1j * x[..., 1], axes=axes).astype(X.dtype)


def check_fourier(normalized: int, onesided: int) -> None:
    """Refuse forms that no implementation has.

    Raises:
        ValueError: Both sides, or a normalization, are asked for.
    """
    if normalized or not onesided:
        raise ValueError(f"expected normalized=0 and onesided=1, found {normalized} and {onesided}")


@op("CDist", shapes="A: M K; B: N K")
def cdist(xp: Namespace, A: Array, B: Array, *, metric: str = "sqeuclidean") -> Array:
    """Return the distance of each row of A to each row of B.

    It is the differences that are squared, some rows at a time: of |a|² - 2ab + |b|² nothing
    would be left where the rows are nearly the same.

    Raises:
        ValueError: A metric other than euclidean and sqeuclidean.
    """
    if metric not in ("euclidean", "sqeuclidean"):
        raise ValueError(f"expected metric euclidean or sqeuclidean, found {metric!r}")
    step = max(1, MAX_DIFFERENCES // max(math.prod(B.shape), 1))
    sums = []
    for first in range(0, max(len(A), 1), step):
        check()
        sums.append(xp.sum(xp.square(A[first : first + step, None] - B), axis=-1))
    squares = xp.concatenate(sums)
    return xp.sqrt(squares) if metric == "euclidean" else squares


@op("NGramRepeatBlock", shapes="input_ids: B L; scores: B V")
def ngram_repeat_block(xp: Namespace, input_ids: Array, scores: Array, *, ngram_size: int) -> Array:
    """Return scores with -inf for tokens that would repeat an n-gram of their row."""
    length = input_ids.shape[1]
    y = scores.copy()
    if length < ngram_size:
        return y
    starts = length - ngram_size + 1
    places = xp.arange(starts)[:, None] + xp.arange(ngram_size)
    grams = input_ids[:, places]
    tail = input_ids[:, length - ngram_size + 1 :]
    rows, where = xp.nonzero(xp.all(grams[:, :, :-1] == tail[:, None], axis=-1))
    y[rows, grams[rows, where, -1]] = -math.inf
    return y
