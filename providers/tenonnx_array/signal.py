"""Fourier transforms, window functions and the mel filter bank."""

from __future__ import annotations

import functools
import math
from typing import Any

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.allocation import check_allocation
from tenonnx_array.dtypes import accumulator, dtype_of

table = OperatorTable()
op = table.op


@op("DFT", since=17, host=(1,), shapes="dft_length: | 1; len(input) > 1; input[-1] in (1, 2)")
def dft_17(
    xp: Namespace,
    input: Array,  # noqa: A002 - the specification's name
    dft_length: Array | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Array:
    """Return the discrete Fourier transform along ``axis``; see ``transform``."""
    return transform(xp, input, scalar(dft_length), axis, bool(inverse), bool(onesided))


@op(
    "DFT", since=20, host=(1, 2), shapes="dft_length axis: | 1; len(input) > 1; input[-1] in (1, 2)"
)
def dft(
    xp: Namespace,
    input: Array,  # noqa: A002 - the specification's name
    dft_length: Array | None = None,
    axis: Array | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Array:
    """Return the discrete Fourier transform along ``axis``, the last but one by default."""
    along = -2 if axis is None else int(axis.item())
    return transform(xp, input, scalar(dft_length), along, bool(inverse), bool(onesided))


def scalar(value: Array | None) -> int | None:
    """Return a host tensor of one element as an int."""
    return None if value is None else int(value.item())


def transform(
    xp: Namespace, x: Array, length: int | None, axis: int, inverse: bool, onesided: bool
) -> Array:
    """Return the Fourier transform of a signal whose last axis is (real) or (real, imaginary).

    The signal is cut or padded with zeros to ``length``. One-sided, the forward transform takes
    real numbers to the spectrum's first half, and the inverse takes that back to real numbers.
    Computed in the signal's precision, at least float32.

    Raises:
        ValueError: An axis that is not the signal's, or complex input where real is needed.
    """
    if not -x.ndim <= axis < x.ndim or axis % x.ndim == x.ndim - 1:
        raise ValueError(f"expected an axis in [-{x.ndim}, -2] or [0, {x.ndim - 2}], found {axis}")
    axis %= x.ndim
    if length is not None:
        check_allocation(xp, (*x.shape[:axis], length, *x.shape[axis + 1 : -1]), "complex128")
    signal = to_complex(xp, x)
    if not onesided and not signal.shape[axis] and not length:  # of nothing is nothing
        return to_pairs(xp, signal.astype(xp.result_type(signal, xp.complex64)), x.dtype)
    if inverse and onesided:
        if x.shape[-1] != 2:
            raise ValueError("expected a complex one-sided spectrum, found a real one")
        real = xp.fft.irfft(signal, n=length or 2 * (x.shape[axis] - 1), axis=axis)
        return real[..., None].astype(x.dtype, copy=False)
    return to_pairs(xp, pick(xp, x, inverse, onesided)(signal, n=length, axis=axis), x.dtype)


def pick(xp: Namespace, x: Array, inverse: bool, onesided: bool) -> Any:
    """Return the namespace's transform to a spectrum, or to a complex signal."""
    if inverse:
        return xp.fft.ifft
    if not onesided:
        return xp.fft.fft
    if x.shape[-1] != 1:
        raise ValueError("expected a real signal for a one-sided spectrum, found a complex one")
    return xp.fft.rfft


def to_complex(xp: Namespace, x: Array) -> Array:
    """Return (..., 1) as real numbers of shape (...), (..., 2) as complex ones."""
    x = x.astype(accumulator(x.dtype), copy=False)
    if x.shape[-1] == 1:
        return x[..., 0]
    pair = xp.complex128 if x.dtype == xp.float64 else xp.complex64
    return xp.ascontiguousarray(x).view(pair)[..., 0]


def to_pairs(xp: Namespace, z: Array, dtype: Any) -> Array:
    """Return complex numbers of shape (...) as (..., 2)."""
    return xp.stack((z.real, z.imag), axis=-1).astype(dtype, copy=False)


@op(
    "STFT",
    since=17,
    host=(1, 3),
    shapes="signal: B L | B L 1|2; window: n; frame_step frame_length: | 1",
)
def stft(
    xp: Namespace,
    signal: Array,
    frame_step: Array,
    window: Array | None = None,
    frame_length: Array | None = None,
    *,
    onesided: int = 1,
) -> Array:
    """Return the Fourier transforms of overlapping frames, (batch, frames, frequencies, 2).

    A signal is (batch, samples, 1) or, complex, (batch, samples, 2); torch's exporter writes real
    ones as (batch, samples), which onnxruntime takes too.

    Raises:
        ValueError: A window that is not as long as a frame, a one-sided complex signal, or a
            signal of another rank.
    """
    if signal.ndim == 2:
        signal = signal[..., None]
    if signal.ndim != 3:
        raise ValueError(f"expected a signal (batch, samples, 1 or 2), found {signal.shape}")
    step, length = int(frame_step.item()), scalar(frame_length)
    if length is None:
        length = int(signal.shape[1] if window is None else window.shape[0])
    if window is not None and window.shape != (length,):
        raise ValueError(f"expected a window of shape ({length},), found {window.shape}")
    if signal.shape[1] < length:
        raise ValueError(
            f"expected a signal of at least one frame of {length} samples, found {signal.shape[1]}"
        )
    count = (signal.shape[1] - length) // step + 1
    check_allocation(xp, (signal.shape[0], count, length), "complex64")
    fourier = pick(xp, signal, False, bool(onesided))
    starts = xp.arange(count)[:, None] * step
    frames = to_complex(xp, signal)[:, starts + xp.arange(length)]
    if window is not None:
        frames = frames * window.astype(accumulator(window.dtype), copy=False)
    return to_pairs(xp, fourier(frames, axis=-1), signal.dtype)


def cosine_window(*coefficients: float) -> Any:
    """Return a kernel for the window ``sum((-1)**k * a[k] * cos(2 pi k n / N))``."""
    return functools.partial(_cosine_window, coefficients)


def _cosine_window(
    coefficients: tuple[float, ...],
    xp: Namespace,
    size: Array,
    *,
    output_datatype: int = 1,
    periodic: int = 1,
) -> Array:
    points = int(size.item())
    check_allocation(xp, (points,), "float64")
    period = points if periodic else points - 1
    angle = xp.arange(points, dtype=xp.float64) * (2 * math.pi / period if period else 0)
    terms: Any = [(-1) ** k * a * xp.cos(k * angle) for k, a in enumerate(coefficients)]
    return sum(terms).astype(dtype_of(output_datatype))


WINDOW_OPERATORS = {
    "HannWindow": cosine_window(0.5, 0.5),
    "HammingWindow": cosine_window(25 / 46, 21 / 46),
    "BlackmanWindow": cosine_window(0.42, 0.5, 0.08),
}
table.rows(WINDOW_OPERATORS, since=17, host=(0,))


@op("MelWeightMatrix", since=17, host=(0, 1, 2, 3, 4))
def mel_weight_matrix(
    xp: Namespace,
    num_mel_bins: Array,
    dft_length: Array,
    sample_rate: Array,
    lower_edge_hertz: Array,
    upper_edge_hertz: Array,
    *,
    output_datatype: int = 1,
) -> Array:
    """Return triangular filters, (dft_length // 2 + 1, num_mel_bins), evenly spaced in mel.

    Band i rises from edge i to 1 at edge i + 1 and falls to edge i + 2. There are
    ``num_mel_bins + 2`` edges, and as in the operator's reference the step between them is the
    range divided by their number, not by the gaps.
    """
    bins, length = int(num_mel_bins.item()), int(dft_length.item())
    check_allocation(xp, (length // 2 + 1, bins), "float64")
    edges = (lower_edge_hertz, upper_edge_hertz)
    low, high = (2595 * math.log10(1 + float(edge.item()) / 700) for edge in edges)
    mel = low + xp.arange(bins + 2, dtype=xp.float64) * ((high - low) / (bins + 2))
    hertz = 700 * (10 ** (mel / 2595) - 1)
    edge = xp.floor((length + 1) * hertz / float(sample_rate.item()))
    left, center, right = edge[:-2], edge[1:-1], edge[2:]
    line = xp.arange(length // 2 + 1, dtype=xp.float64)[:, None]
    rising = (line - left) / xp.where(center > left, center - left, 1)
    falling = (right - line) / xp.where(right > center, right - center, 1)
    rises, falls = (left <= line) & (line < center), (center < line) & (line < right)
    weights = xp.where(rises, rising, xp.where(falls, falling, line == center))
    return weights.astype(dtype_of(output_datatype))
