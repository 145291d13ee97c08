"""Fourier transforms by their sums, windows and filter banks by hand."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from case import Case
from formula import RNG

REAL = RNG.standard_normal((2, 5, 3, 1)).astype(np.float32)
COMPLEX = RNG.standard_normal((2, 5, 3, 2)).astype(np.float32)
SIGNAL = RNG.standard_normal((2, 11, 1)).astype(np.float32)
WINDOW = RNG.random(4).astype(np.float32)


def numbers(x: Any) -> Any:
    return x[..., 0].astype(complex) + (1j * x[..., 1] if x.shape[-1] == 2 else 0)


def pairs(z: Any, dtype: Any = np.float32) -> Any:
    return np.stack((z.real, z.imag), -1).astype(dtype)


def dft(z: Any, axis: int, length: int, sign: int = -1) -> Any:
    z = np.moveaxis(z, axis, -1)[..., :length]
    n, k = np.arange(z.shape[-1])[:, None], np.arange(length)
    y = z @ np.exp(sign * 2j * np.pi * n * k / length)
    return np.moveaxis(y if sign < 0 else y / length, -1, axis)


def frames(x: Any, step: int, length: int, window: Any = 1) -> Any:
    z = numbers(x)
    starts = range(0, z.shape[1] - length + 1, step)
    return np.stack([dft(z[:, s : s + length] * window, 1, length) for s in starts], 1)


# 8000 Hz are 2840 mel; the edges at 0, 710, 1420 and 2130 mel lie at 0, 614, 1768 and 3933 Hz,
# and those on the lines 0, 0, 2 and 4 of a spectrum with a line every 800 Hz.
MEL = np.float32([[1, 0], [0.5, 0.5], [0, 1], [0, 0.5], [0, 0]])

CASES = [
    Case("DFT", 17, [REAL], lambda x: pairs(dft(numbers(x), 1, 5))),
    Case(
        "DFT",
        17,
        [COMPLEX, np.int64(4)],
        lambda x, _: pairs(dft(numbers(x), 2, 4, sign=1)),
        {"axis": -2, "inverse": 1},
        name="inverse-padded",
    ),
    Case("DFT", 20, [COMPLEX], lambda x: pairs(dft(numbers(x), 2, 3)), name="last-axis"),
    Case(
        "DFT",
        20,
        [REAL, np.int64(3), np.int64(1)],
        lambda x, *_: pairs(dft(numbers(x), 1, 3)[:, :2]),
        {"onesided": 1},
        name="onesided-cut",
    ),
    Case(
        "DFT",
        20,
        [pairs(np.fft.rfft(REAL[..., 0], axis=1)), np.int64(5), np.int64(1)],
        REAL,
        {"onesided": 1, "inverse": 1},
        name="odd-length-and-back",
    ),
    Case(
        "DFT",
        20,
        [COMPLEX.astype(np.float64)],
        lambda x: pairs(dft(numbers(x), 2, 3), float),
        rtol=1e-13,
        atol=1e-14,
        name="double",
    ),
    Case(
        "DFT",
        20,
        [REAL.astype(ml_dtypes.bfloat16)],
        lambda x: pairs(dft(numbers(x), 2, 3), ml_dtypes.bfloat16),
        rtol=2**-8,
        name="bfloat16",
    ),
    Case(
        "STFT",
        17,
        [SIGNAL, np.int64(3), WINDOW],
        lambda x, _, w: pairs(frames(x, 3, 4, w)[..., :3]),
    ),
    Case(
        "STFT",
        17,
        [COMPLEX[:, :, 0], np.int64(1), None, np.int64(3)],
        lambda x, *_: pairs(frames(x, 1, 3)),
        {"onesided": 0},
        name="complex",
    ),
    Case("STFT", 17, [SIGNAL, np.int64(1)], lambda x, _: pairs(frames(x, 1, 11)[..., :6])),
    Case(
        "STFT",
        17,
        [SIGNAL[..., 0], np.int64(2), WINDOW],
        lambda x, _, w: pairs(frames(x[..., None], 2, 4, w)[..., :3]),
        name="of-two-axes",
    ),
    Case("HannWindow", 17, [np.int32(4)], np.float32([0, 0.5, 1, 0.5])),
    Case("HannWindow", 17, [np.int32(5)], np.float32([0, 0.5, 1, 0.5, 0]), {"periodic": 0}),
    Case("HannWindow", 17, [np.int32(0)], np.zeros(0, np.float32), name="empty"),
    Case("HammingWindow", 17, [np.int64(2)], np.float64([2 / 23, 1]), {"output_datatype": 11}),
    Case(
        "BlackmanWindow", 17, [np.int64(4)], np.float64([0, 0.34, 1, 0.34]), {"output_datatype": 11}
    ),
    Case(
        "MelWeightMatrix",
        17,
        [*np.int64([2, 9, 8000]), np.float32(0), np.float32(8000)],
        MEL,
        name="triangles",
    ),
]
