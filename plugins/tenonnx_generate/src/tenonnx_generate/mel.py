"""Log-mel features of speech, as Whisper's encoders take them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]

# Samples a second that all models of speech here are trained with.
SAMPLE_RATE = 16_000

# The least power whose logarithm is taken.
MIN_POWER = 1e-10

# Powers of ten below the loudest that count: what is softer is raised to that.
DYNAMIC_RANGE_DECADES = 8.0


@dataclass(frozen=True)
class Mel:
    """The computation of features from samples.

    Attributes:
        bands: Bands of the mel scale; a feature each.
        window: Samples of a frame.
        hop: Samples from the beginning of a frame to that of the next one.
        seconds: The length of sound that a model takes at once.
    """

    bands: int = 80
    window: int = 400
    hop: int = 160
    seconds: int = 30

    @property
    def samples(self) -> int:
        """Sample that a model takes at once."""
        return self.seconds * SAMPLE_RATE

    @property
    def frames(self) -> int:
        """Frame of that many samples."""
        return self.samples // self.hop


def features(samples: NDArray, mel: Mel) -> NDArray:
    """Return the features [bands, frames] of samples, which silence fills up.

    The power spectrum of frames that a Hann window weights, summed in bands of the mel scale;
    its logarithm, as deep as ``DYNAMIC_RANGE_DECADES`` below the loudest, over 4, plus 1.

    Args:
        samples: Mono, from -1 to 1, at ``SAMPLE_RATE``, not more than ``mel.samples``.
        mel: How.
    """
    whole = np.zeros(mel.samples)
    whole[: len(samples)] = samples
    padded = np.pad(whole, mel.window // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, mel.window)[:: mel.hop]
    # A periodic window: one of a sample more, without its last.
    spectrum = np.fft.rfft(frames[: mel.frames] * np.hanning(mel.window + 1)[:-1])
    power = spectrum.real**2 + spectrum.imag**2
    loudness = np.log10(np.maximum(filters(mel.bands, mel.window) @ power.T, MIN_POWER))
    np.maximum(loudness, loudness.max() - DYNAMIC_RANGE_DECADES, out=loudness)
    return ((loudness + 4) / 4).astype(np.float32)


@lru_cache(maxsize=4)
def filters(bands: int, window: int) -> NDArray:
    """Return how much of each frequency [window // 2 + 1] is in each band: [bands, frequencies].

    Triangles from 0 Hz to half of ``SAMPLE_RATE``, evenly spaced on Slaney's mel scale, with the
    same area. Each begins at the peak of the one before.
    """
    edges = _hertz(np.linspace(0, _mels(SAMPLE_RATE / 2), bands + 2))
    frequencies = np.linspace(0, SAMPLE_RATE / 2, window // 2 + 1)
    slopes = edges[:, None] - frequencies
    widths = np.diff(edges)[:, None]
    rising, falling = -slopes[:-2] / widths[:-1], slopes[2:] / widths[1:]
    triangles = np.maximum(np.minimum(rising, falling), 0)
    bands_of: NDArray = triangles * 2 / (edges[2:] - edges[:-2])[:, None]
    return bands_of


# Slaney's scale: even up to 1000 Hz, which is mel 15; above, each mel is 6.4 ** (1 / 27) times
# the one before.
BEND, STEP = 1000.0, np.log(6.4) / 27


def _mels(hertz: float) -> float:
    return hertz * 3 / 200 if hertz < BEND else 15 + float(np.log(hertz / BEND) / STEP)


def _hertz(mels: NDArray) -> NDArray:
    return np.where(mels < 15, mels * 200 / 3, BEND * np.exp((mels - 15) * STEP))
